"""From layers of settings to a `RunConfig`, and every problem on the way in one error."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from rllm_core.config.layers import LISTS, Layers, Override, parse_override
from rllm_core.config.schema import (
    SECTIONS,
    BenchmarkTable,
    Kind,
    ModelTable,
    PluginsTable,
    PluginTable,
    RunConfig,
    RunSettings,
)
from rllm_core.errors import ConfigError
from rllm_core.plugins.options import Where, build, nearest, problem, raise_all
from rllm_core.plugins.origin import Origin

__all__ = ["load"]

T = TypeVar("T")

DEFAULT_USE = {"harness": "react", "backend": "local", "algorithm": "grpo"}
"""The plugin of a table that names none."""

TRAIN_SECTIONS = ("validation", "algorithm")
"""Tables that have no effect in an evaluation."""


def load(
    path: str | Path | None = None,
    *,
    text: str | None = None,
    overrides: Sequence[str | tuple[str, Any] | Override] = (),
    environ: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Read a run configuration.

    Layers, weakest first: the TOML file at `path` (or its `text`), environment variables
    `RLLM__SECTION__KEY`, `overrides` from the command line (`"a.b=value"`, read as TOML where
    it is TOML, or a path with a value as it stands), `values` from Python. Later overrides of
    one path win over earlier ones. Raises ConfigError, with every problem that was found.
    """
    layers = Layers()
    if path is not None:
        text = _read(Path(path))
    if text is not None:
        layers.add_file(text, str(path) if path is not None else "the run file")
    layers.add_environment(os.environ if environ is None else environ)
    layers.add_overrides([_override(each) for each in overrides])
    layers.add_values(values or {})
    return _Reader(layers).config()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no run file {path}", remedy=_siblings(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the run file {path}: {error}") from None


def _siblings(path: Path) -> str:
    folder = path.parent
    names = [p.name for p in folder.glob("*.toml")] if folder.is_dir() else []
    return nearest(path.name, names) or "`rllm eval|train … --dry-run > FILE` writes one"


def _override(each: str | tuple[str, Any] | Override) -> Override:
    if isinstance(each, Override):
        return each
    if isinstance(each, str):
        return parse_override(each)
    return Override(tuple(each[0].split(".")), each[1], Origin("given in Python"))


class _Reader:
    """Builds each table, collecting problems instead of stopping at the first."""

    def __init__(self, layers: Layers) -> None:
        self.tree = layers.tree
        self.origins = layers.origins
        self.problems: list[ConfigError] = []

    def config(self) -> RunConfig:
        """The configuration, or every problem."""
        self.problems += self._unknown_sections()
        run = self._table(("run",), self.tree.get("run", {}), RunSettings)
        run = run or RunSettings(kind=self._kind())
        made = RunConfig(
            run=run,
            benchmark=self._several("benchmark", self._tasks),
            validation=self._optional("validation", self._tasks),
            harness=self._plugin(("harness",), self.tree.get("harness", {})),
            scorer=self._optional("scorer", self._plugin),
            sandbox=self._optional("sandbox", self._plugin),
            models=self._models(),
            backend=self._optional("backend", self._plugin, always=run.kind == "train"),
            algorithm=self._optional("algorithm", self._plugin, always=run.kind == "train"),
            trackers=self._several("trackers", self._plugin),
            plugins=self._table(("plugins",), self.tree.get("plugins", {}), PluginsTable)
            or PluginsTable(),
            origins=self.origins,
        )
        self.problems += self._without_effect(run.kind)
        raise_all(self.problems)
        return made

    def _kind(self) -> Kind:
        """The kind of a run whose table has errors, so that the rest is still judged by it."""
        run = self.tree.get("run")
        return "train" if isinstance(run, Mapping) and run.get("kind") == "train" else "eval"

    def _unknown_sections(self) -> Iterator[ConfigError]:
        for section in self.tree:
            if section not in SECTIONS:
                hint = nearest(section, SECTIONS)
                remedy = "   ".join(filter(None, (hint, f"tables: {', '.join(SECTIONS)}")))
                yield problem((section,), "unknown table", self._first_origin(section), remedy)

    def _without_effect(self, kind: str) -> Iterator[ConfigError]:
        """Settings that a run of this kind would not look at."""
        other = "train" if kind == "eval" else "eval"
        for a in attrs.fields(RunSettings):
            origin = self.origins.places.get(("run", a.name))
            if origin and kind not in a.metadata["kinds"]:
                what = f"has no effect in a run of kind '{kind}'"
                yield problem(("run", a.name), what, origin, self._instead(a.name, other))
        for section in TRAIN_SECTIONS if kind == "eval" else ():
            if section in self.tree:
                what = "has no effect in a run of kind 'eval'"
                yield problem(
                    (section,), what, self._first_origin(section), "leave it out, or `rllm train`"
                )

    def _instead(self, name: str, other: str) -> str:
        if name == "attempts":
            return "in training, run.group_size is the number of attempts at each task"
        return f"leave it out, or make it a run of kind '{other}'"

    def _first_origin(self, section: str) -> Origin | None:
        return next((self.origins.of(path) for path in self.origins.within((section,))), None)

    def _shown(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """A table's path as users write it: the only one of a list has no number."""
        if path[0] in LISTS and len(self.tree[path[0]]) == 1:
            return (path[0], *path[2:])
        return path

    def _bad(self, path: tuple[str, ...], what: str, remedy: str | None = None) -> None:
        origin = self.origins.of(path)
        self.problems.append(problem(self._shown(path), what, origin, remedy))

    def _table(self, path: tuple[str, ...], table: Any, cls: type[T]) -> T | None:
        if not isinstance(table, Mapping):
            self._bad(path, f"expected a table, not {table!r:.80}")
            return None
        shown = self._shown(path)
        where = Where(shown, f"[{'.'.join(shown)}]", "", self.origins, "setting", place=path)
        try:
            return build(cls, table, where)
        except ConfigError as error:
            self.problems.append(error)
            return None

    def _plugin(self, path: tuple[str, ...], table: Any) -> PluginTable:
        if isinstance(table, str):  # harness = "react"
            table = {"use": table}
        options = dict(table) if isinstance(table, Mapping) else {}
        use = options.pop("use", DEFAULT_USE.get(path[0]))
        if not isinstance(table, Mapping):
            what = f"expected a table, not {table!r:.80}"
        elif use is None:
            what = "names no plugin"
        elif not isinstance(use, str):
            what = f"use: expected text, not {use!r:.80}"
        else:
            return PluginTable(use, options)
        self._bad(path, what, 'write use = "NAME" in it; `rllm plugins` lists the installed ones')
        return PluginTable("")

    def _tasks(self, path: tuple[str, ...], table: Any) -> BenchmarkTable:
        if isinstance(table, str):  # benchmark = "gsm8k"
            table = {"use": table}
        if not isinstance(table, Mapping):
            return self._table(path, table, BenchmarkTable) or BenchmarkTable()
        known = {a.name for a in attrs.fields(BenchmarkTable)} - {"options"}
        common = {key: value for key, value in table.items() if key in known}
        options = {key: value for key, value in table.items() if key not in known}
        made = self._table(path, common, BenchmarkTable)
        if made is None:
            return BenchmarkTable()
        unnamed = made.use is None and made.file is None
        if unnamed and path != ("validation",):  # which may mean the benchmark trained on
            self._bad(path, "names no benchmark", 'write use = "NAME", or give a file of tasks')
        return attrs.evolve(made, options=options)

    def _optional(
        self, section: str, make: Callable[[tuple[str, ...], Any], T], *, always: bool = False
    ) -> T | None:
        if section in self.tree or always:
            return make((section,), self.tree.get(section, {}))
        return None

    def _several(self, section: str, make: Callable[[tuple[str, ...], Any], T]) -> tuple[T, ...]:
        tables = self.tree.get(section, [])
        tables = tables if isinstance(tables, list) else [tables]
        return tuple(make((section, str(i)), table) for i, table in enumerate(tables))

    def _models(self) -> dict[str, ModelTable]:
        models = self.tree.get("models", {})
        if not isinstance(models, Mapping):
            self._table(("models",), models, ModelTable)
            return {}
        made = {}
        for role, table in models.items():
            table = {"name": table} if isinstance(table, str) else table  # noqa: PLW2901
            found = self._table(("models", role), table, ModelTable)
            if found is not None:
                made[role] = found
        return made


assert set(LISTS) <= set(SECTIONS)
