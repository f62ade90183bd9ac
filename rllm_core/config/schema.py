"""The run configuration: frozen attrs classes, one a table of the run file.

TOML files, command-line overrides, environment variables and Python calls all build the same
`RunConfig` (`rllm_core.config.load`). Each field's `doc` is the sentence that help pages
print; `kinds` says which kind of run a setting has an effect in, where that is not both:
setting it in the other kind is an error.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import attrs
from attrs import Factory, field, frozen

from rllm_core.plugins.origin import Origin, Origins

__all__ = [
    "BenchmarkTable",
    "Kind",
    "ModelTable",
    "PluginTable",
    "PluginsTable",
    "RunConfig",
    "RunSettings",
]

Kind = Literal["eval", "train"]

TRAIN = ("train",)
EVAL = ("eval",)


def setting(default: Any, doc: str, *, kinds: tuple[str, ...] = (), check: Any = None) -> Any:
    """A field with its sentence, the kinds of run it has an effect in, and its validator."""
    metadata = {"doc": doc, "kinds": kinds or (*EVAL, *TRAIN)}
    return field(default=default, metadata=metadata, validator=check)


def at_least(bound: float, *, above: bool = False) -> Any:
    """A validator: None, or a finite number of at least `bound` (or above it)."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"'{attribute.name}' must be a finite number, not {value}")
        if value <= bound if above else value < bound:
            words = "above" if above else "at least"
            raise ValueError(f"'{attribute.name}' must be {words} {bound:g}, not {value}")

    return check


def between(low: float, high: float, *, above: bool = False) -> Any:
    """A validator: None, or a number in [low, high] (or in (low, high])."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value is not None and (not low <= value <= high or (above and value == low)):
            words = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
            raise ValueError(f"'{attribute.name}' must be {words}, not {value}")

    return check


def at_most_long(length: int) -> Any:
    """A validator: None, or a text of at most `length` characters."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value is not None and len(value) > length:
            raise ValueError(
                f"'{attribute.name}' must be at most {length} characters long, not {len(value)}"
            )

    return check


@frozen
class RunSettings:
    """The table `[run]`."""

    kind: Kind = setting("eval", "eval or train")  # noqa: RUF009 - makes a field
    name: str | None = setting(
        None, "a name for people; shown beside the run's id", check=at_most_long(200)
    )
    seed: int = setting(0, "seed of shuffling and sampling", check=at_least(0))
    concurrency: int = setting(32, "rollouts that run at the same time", check=at_least(1))
    deadline: float = setting(
        600.0, "seconds one rollout may take, scoring included", check=at_least(0, above=True)
    )
    retries: int = setting(
        2, "fresh attempts at a rollout whose infrastructure failed", check=at_least(0)
    )
    max_error_share: float = setting(
        0.5, "stop the run when more than this share of rollouts fails", check=between(0, 1)
    )
    directory: str | None = setting(None, "run directory (default: RLLM_HOME/runs/<id>)")
    record: bool = setting(
        default=False, doc="record what the models are asked and answer, in the run directory"
    )
    replay: str | None = setting(None, "a recorded run, whose answers stand in for the models'")
    attempts: int = setting(1, "attempts at each task", kinds=EVAL, check=at_least(1))
    steps: int = setting(60, "optimizer steps", kinds=TRAIN, check=at_least(1))
    group_size: int = setting(
        8, "attempts at each task, compared with each other", kinds=TRAIN, check=at_least(1)
    )
    groups_per_step: int = setting(4, "tasks in one step", kinds=TRAIN, check=at_least(1))
    max_staleness: int = setting(
        0,
        "steps that a rollout's weights may be behind; 0 is synchronous",
        kinds=TRAIN,
        check=at_least(0),
    )
    learning_rate: float | None = setting(
        None,
        "learning rate (default: the backend's own)",
        kinds=TRAIN,
        check=at_least(0, above=True),
    )
    eval_every: int = setting(
        0,
        "steps between evaluations on the validation tasks; 0: only before and after",
        kinds=TRAIN,
        check=at_least(0),
    )
    eval_temperature: float = setting(
        0.0, "sampling temperature on the validation tasks", kinds=TRAIN, check=at_least(0)
    )
    require_gain: float | None = setting(
        None,
        "fail unless accuracy on the validation tasks rises by this many standard errors",
        kinds=TRAIN,
        check=at_least(0),
    )
    checkpoint_every: int = setting(
        10, "steps between checkpoints; 0: only the last", kinds=TRAIN, check=at_least(0)
    )
    keep_checkpoints: int = setting(2, "checkpoints kept", kinds=TRAIN, check=at_least(1))


@frozen
class BenchmarkTable:
    """A table `[benchmark]` or `[validation]`: which tasks, and that benchmark's own options."""

    use: str | None = setting(None, "the benchmark's name")
    split: str | None = setting(None, "its split (default: train in training, else test)")
    max: int | None = setting(None, "at most this many tasks", check=at_least(1))
    skip: int = setting(0, "leave out this many tasks first", check=at_least(0))
    ids: tuple[str, ...] = setting((), "only the tasks of these ids")
    shuffle: bool = setting(
        default=False, doc="shuffle the tasks, by the run's seed, before skip and max"
    )
    file: str | None = setting(None, "read rows from this JSONL file instead of the source")
    options: Mapping[str, Any] = Factory(dict)


@frozen
class PluginTable:
    """A table that names its plugin with `use`; its other keys are that plugin's options."""

    use: str
    options: Mapping[str, Any] = Factory(dict)


@frozen
class ModelTable:
    """A table `[models.ROLE]`: a model and how it is sampled. None: the model's own."""

    name: str | None = setting(
        None, "provider/model, a hub name, a directory, a run's id, tiny or smollm2-135m"
    )
    base_url: str | None = setting(None, "an OpenAI-compatible server, ending in its version path")
    api_key_env: str | None = setting(None, "the environment variable that holds its key")
    temperature: float | None = setting(None, "sampling temperature", check=at_least(0))
    top_p: float | None = setting(None, "nucleus sampling", check=between(0, 1, above=True))
    top_k: int | None = setting(None, "sample from the k likeliest tokens", check=at_least(0))
    max_tokens: int | None = setting(None, "tokens that one call may sample", check=at_least(1))
    context_window: int | None = setting(
        None, "tokens of prompt and completion together", check=at_least(1)
    )


@frozen
class PluginsTable:
    """The table `[plugins]`: which of the installed plugins may be used."""

    disable: tuple[str, ...] = setting(
        (), "plugins that must not be used: kind/name, a name, or a package"
    )


@frozen
class RunConfig:
    """A whole run, as the user asked for it."""

    run: RunSettings = RunSettings()
    benchmark: tuple[BenchmarkTable, ...] = ()
    validation: BenchmarkTable | None = None
    harness: PluginTable = PluginTable("react")
    scorer: PluginTable | None = None
    sandbox: PluginTable | None = None
    models: Mapping[str, ModelTable] = Factory(dict)
    backend: PluginTable | None = None
    algorithm: PluginTable | None = None
    trackers: tuple[PluginTable, ...] = ()
    plugins: PluginsTable = PluginsTable()
    origins: Origins = field(factory=Origins, eq=False, repr=False, kw_only=True)

    @property
    def policy(self) -> ModelTable:
        """The model that the agent talks to."""
        return self.models.get("policy", ModelTable())

    def origin(self, path: str) -> Origin | None:
        """Where the setting at a dotted path came from; None where it is a default.

        `benchmark.split` means the first benchmark, as `benchmark.0.split` does.
        """
        section, *rest = path.split(".")
        if section in ("benchmark", "trackers") and rest and not rest[0].isdigit():
            rest = ["0", *rest]
        return self.origins.of((section, *rest))


SECTIONS = tuple(a.name for a in attrs.fields(RunConfig) if a.name != "origins")
"""The tables of a run file."""
