"""One chosen plugin: its class, its options, and the object made of them."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
from attrs import define, field, frozen

from rllm_core.config.schema import BenchmarkTable, PluginTable, RunConfig
from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins
from rllm_core.plugins.options import Where, build, problem
from rllm_core.plugins.shapes import converter
from rllm_core.references import is_reference

__all__ = ["Chooser", "Chosen", "validation_split"]

T = TypeVar("T")

FILE_ENDINGS = (".jsonl", ".ndjson")


@frozen
class Chosen:
    """A plugin that a run uses. `make()` gives a new object of its class with its options."""

    kind: str
    name: str
    cls: Any = field(repr=False)
    options: Any
    table: Any = field(repr=False)
    path: tuple[str, ...] = field(repr=False)

    @property
    def capabilities(self) -> Any:
        """What the class declares that it can do, honours or needs."""
        return self.cls.capabilities

    def make(self) -> Any:
        """A new instance; ConfigError where it refuses its options."""
        try:
            return self.cls(self.options)
        except ConfigError:
            raise
        except Exception as error:
            what = f"{self.kind} '{self.name}' cannot be set up: {type(error).__name__}: {error}"
            raise ConfigError(f"{'.'.join(self.path)}: {what}") from error

    def resolved_options(self) -> dict[str, Any]:
        """Every option with the value that it will have, as a run file holds them."""
        data: Mapping[str, Any] = converter().unstructure(self.options)
        return {key: value for key, value in data.items() if value is not None}


def validation_split(benchmark: Chosen) -> str | None:
    """The split that training on a benchmark validates on unless told; None: it has none.

    A local file has no such split: only `[validation]` can say on what.
    """
    split: str | None = benchmark.cls.default_splits.get("eval")
    known = benchmark.table.file is None and split in benchmark.cls.splits
    return split if known else None


@define
class Chooser:
    """Loads what the tables of a configuration name, collecting what is wrong."""

    config: RunConfig
    plugins: Plugins
    objects: Mapping[str, Any]
    problems: list[ConfigError] = field(factory=list)

    def plugin(self, kind: str, path: tuple[str, ...], table: PluginTable) -> Chosen | None:
        """The plugin of a table, or None and a problem."""
        return self._guarded(path, lambda: self._plugin(kind, path, table))

    def benchmark(
        self, path: tuple[str, ...], place: tuple[str, ...], table: BenchmarkTable
    ) -> Chosen | None:
        """The benchmark of a table, its split filled in."""
        return self._guarded(place, lambda: self._benchmark(path, place, table))

    def harness(self, table: PluginTable) -> Chosen | None:
        """The harness: a plugin, or the user's own function or class."""
        own = self.objects.get("harness")
        if own is None and not is_reference(table.use):
            return self.plugin("harness", ("harness",), table)

        def find() -> Chosen:
            from rllm_core.harness.functions import harness_class

            cls = harness_class(table.use if own is None else own)
            return self._chosen("harness", ("harness",), table, cls, listed=False)

        return self._guarded(("harness",), find)

    def scorer(self, table: PluginTable | None) -> Any:
        """The scorer that takes the benchmark's place, or None."""
        own = self.objects.get("scorer")
        if table is None and own is None:
            return None
        if table is not None and table.options:
            key = next(iter(table.options))
            origin = self.config.origins.of(("scorer", key))
            self.problems.append(problem(("scorer", key), "a scorer has no options", origin))
            return None

        def find() -> Any:
            from rllm_core.scoring import load_scorer

            reference: Any = own if own is not None else (table.use if table else None)
            return load_scorer(reference)

        return self._guarded(("scorer",), find)

    def _guarded(self, path: tuple[str, ...], find: Callable[[], T]) -> T | None:
        """What `find` returns; a name that cannot be loaded is told with where it was set."""
        try:
            return find()
        except ConfigError as error:
            told = error
            if not str(error).startswith(f"{path[0]}."):
                origin = self.config.origins.of((*path, "use"))
                told = problem((path[0], "use"), error.message, origin, error.remedy)
            self.problems.append(told)
            return None

    def _plugin(self, kind: str, path: tuple[str, ...], table: PluginTable) -> Chosen:
        cls = self._class(kind, table.use)
        return self._chosen(kind, path, table, cls, listed=not is_reference(table.use))

    def _class(self, kind: str, use: str) -> Any:
        """The installed plugin of this name, or the user's own class."""
        if is_reference(use):
            from rllm_core.resolve.own import own_class

            return own_class(kind, use)
        return self.plugins.load(kind, use)

    def _chosen(
        self,
        kind: str,
        path: tuple[str, ...],
        table: PluginTable,
        cls: Any,
        *,
        listed: bool = True,
    ) -> Chosen:
        listing = f"rllm plugins show {kind}/{table.use}" if listed else ""
        where = Where(path, f"{kind} '{table.use}'", listing, self.config.origins)
        return Chosen(kind, table.use, cls, build(cls.Options, table.options, where), table, path)

    def _benchmark(
        self, path: tuple[str, ...], place: tuple[str, ...], table: BenchmarkTable
    ) -> Chosen:
        use, file = table.use, table.file
        if use is not None and use.lower().endswith(FILE_ENDINGS):  # `rllm eval ./tasks.jsonl`
            if file is not None:
                raise problem(path, f"names two files, {use} and {file}", self._at(place))
            use, file = None, use
        cls = self._class("benchmark", use) if use is not None else _file_benchmark()
        name = use or "file"
        options = dict(table.options)
        if file is not None:
            if "file" not in {a.alias for a in attrs.fields(cls.Options)}:
                what = f"benchmark '{name}' reads no file"
                raise problem((*path, "file"), what, self._at((*place, "file")))
            options["file"] = file
        listed = use is not None and not is_reference(use)
        listing = f"rllm plugins show benchmark/{name}" if listed else ""
        owner = f"benchmark '{name}'" if use else "a benchmark that is a file"
        where = Where(path, owner, listing, self.config.origins, place=place)
        built = build(cls.Options, options, where)
        filled = attrs.evolve(table, use=use, file=file, split=self._split(cls, name, table, place))
        return Chosen("benchmark", name, cls, built, filled, path)

    def _split(self, cls: Any, name: str, table: BenchmarkTable, place: tuple[str, ...]) -> str:
        """The split that the user named, checked, or the one for this kind of run."""
        purpose = "eval" if place[0] == "validation" else self.config.run.kind
        split: str = table.split or cls.default_splits.get(purpose, "test")
        if cls.splits and split not in cls.splits:
            from rllm_core.plugins.options import nearest

            listed = f"its splits are {', '.join(cls.splits)}"
            remedy = "   ".join(filter(None, (nearest(split, cls.splits), listed)))
            what = f"benchmark '{name}' has no split '{split}'"
            raise problem((place[0], "split"), what, self._at((*place, "split")), remedy)
        return split

    def _at(self, path: tuple[str, ...]) -> Any:
        return self.config.origins.of(path)


def _file_benchmark() -> Any:
    from rllm_core.benchmark.file import FileBenchmark

    return FileBenchmark
