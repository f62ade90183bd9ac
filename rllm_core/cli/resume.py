"""A run that goes on: the configuration it was started with, and what of it may change.

What decides results stays: half a run of one model and half of another is no run. How fast it
goes, how it is watched and where its server stands may change between two processes.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllm_core.errors import ConfigError

if TYPE_CHECKING:
    from rllm_core.config import Override, RunConfig

__all__ = ["refuse_changes", "stored_config"]

RUN = (
    "attempts",
    "checkpoint_every",
    "concurrency",
    "deadline",
    "eval_every",
    "keep_checkpoints",
    "learning_rate",
    "max_error_share",
    "require_gain",
    "retries",
)
"""Settings of `[run]` that may change."""

REMEDY = "leave it out, or start a new run (--model RUN takes a trained run's weights)"


def stored_config(directory: Path, overrides: "Sequence[Override]") -> "RunConfig":
    """The run's stored configuration with what was typed on top; ConfigError for another kind."""
    from rllm_core.config import load
    from rllm_core.store.reader import CONFIG

    text = (directory / CONFIG).read_text("utf-8")
    kind = tomllib.loads(text)["run"]["kind"]
    for override in overrides:
        if override.path == ("run", "kind") and override.value != kind:
            raise ConfigError(
                f"the run in {directory} is of kind '{kind}', not '{override.value}'",
                remedy=f"rllm {kind} --resume {directory.name}",
            )
    return load(text=text, overrides=overrides)


def refuse_changes(directory: Path, config: "RunConfig") -> None:
    """ConfigError with every setting that a run must keep and `config` (complete) changes."""
    from rllm_core.config.writing import to_data
    from rllm_core.plugins.options import problem, raise_all
    from rllm_core.store.reader import CONFIG

    before = dict(_leaves(tomllib.loads((directory / CONFIG).read_text("utf-8"))))
    now = dict(_leaves(to_data(config)))
    raise_all(
        problem(
            path,
            f"a run that goes on keeps it: {_shown(before, path)}, not {_shown(now, path)}",
            config.origin(".".join(path)),
            REMEDY,
        )
        for path in {**before, **now}
        if before.get(path) != now.get(path)
        and not _may_change(path, config.run.kind)
        # what neither process was told is a plugin's default, new with its new version
        and (path in before or config.origin(".".join(path)) is not None)
    )


def _shown(values: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> str:
    return repr(values[path]) if path in values else "unset"


def _may_change(path: tuple[str, ...], kind: str) -> bool:
    section, *rest = path
    match section:
        case "run":
            return rest[0] in RUN
        case "models":
            return rest[-1] in ("base_url", "api_key_env")
        case "backend":
            return rest != ["use"]
        case "benchmark":
            return kind == "eval" and rest[-1] == "max"
    return section in ("trackers", "plugins")


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting with its path; a table in a list has its number in it."""
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, inner in items:
        yield from _leaves(inner, (*path, str(key)))
