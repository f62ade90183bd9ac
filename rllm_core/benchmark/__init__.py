"""Benchmarks: tasks, and how an episode is scored.

`RowBenchmark` is the base for data sets of rows; most benchmarks are one of those, in thirty to
eighty lines. `FileBenchmark` (in `rllm_core.benchmark.file`) is a user's own JSONL, and `select`
(in `rllm_core.benchmark.selection`) picks the tasks that a run uses.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from attrs import Factory, frozen

from rllm_core.types import Episode, Graded, Score, Task

__all__ = [
    "Benchmark",
    "BenchmarkCapabilities",
    "Episode",
    "GeneratedRows",
    "Graded",
    "HubRows",
    "RowBenchmark",
    "Score",
    "ScoreContext",
    "Task",
]


@frozen
class BenchmarkCapabilities:
    """What a benchmark needs of the run; refused before start where it is missing."""

    tools: bool = False
    multi_turn: bool = False
    images: bool = False
    sandbox: bool = False
    judge: bool = False


@frozen
class ScoreContext:
    """What a scorer may use: the sandbox as the agent left it, model roles, the stage."""

    sandbox: Any = None
    models: Mapping[str, Any] = Factory(dict)
    stage: str | None = None


class Benchmark:
    """Base of all benchmarks. `options` is an instance of the class's `Options`."""

    category: ClassVar[str] = ""
    capabilities: ClassVar[BenchmarkCapabilities] = BenchmarkCapabilities()
    splits: ClassVar[Mapping[str, str]] = {}
    """Split names as users type them → names in the source."""
    default_splits: ClassVar[Mapping[str, str]] = {"train": "train", "eval": "test"}
    """Which split training and evaluation use when the user names none."""
    max_tokens: ClassVar[int | None] = None
    """Tokens that an answer needs: where sampling stops a model that a backend loads here, unless
    the user says otherwise. A small model that rambles would else fill its whole window."""

    @frozen
    class Options:
        """Options that users set under `[benchmark]`."""

    def __init__(self, options: Any = None) -> None:
        self.options: Any = options if options is not None else self.Options()

    def tasks(self, split: str) -> Iterable[Task]:
        """The tasks of a split, always the same ones in the same order, ids unique."""
        raise NotImplementedError

    async def score(self, task: Task, episode: Episode, ctx: ScoreContext) -> Score:
        """Score one episode. An exception here is a failed score, never a zero."""
        raise NotImplementedError


# The base above is what these build on, so they stand below it.
from rllm_core.benchmark.rows import RowBenchmark  # noqa: E402
from rllm_core.benchmark.sources import GeneratedRows, HubRows  # noqa: E402
