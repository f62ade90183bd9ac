"""From a checked benchmark table to the tasks and the scorer of a phase."""

from collections.abc import Sequence

from rllm_core.benchmark import Benchmark
from rllm_core.benchmark.selection import select
from rllm_core.config import BenchmarkTable
from rllm_core.engine.evaluate import TaskSet
from rllm_core.engine.jobs import Scorer
from rllm_core.harness import Harness
from rllm_core.resolve import Chosen

__all__ = ["task_set"]


def task_set(
    chosen: Chosen,
    harness: Harness,
    scorer: Scorer | None = None,
    *,
    seed: int = 0,
    taken: Sequence[str] = (),
) -> TaskSet:
    """The tasks that a chosen benchmark's table asks for, under a name not in `taken`.

    Raises ConfigError where nothing is left, or where the harness cannot work on one of them.
    """
    table: BenchmarkTable = chosen.table
    benchmark: Benchmark = chosen.make()
    tasks = select(
        benchmark.tasks(table.split or "test"),
        max=table.max,
        skip=table.skip,
        ids=table.ids,
        shuffle=table.shuffle,
        seed=seed,
        table=".".join(chosen.path),
    )
    for task in tasks:
        harness.check(task)
    return TaskSet(_name(chosen.name, taken), tasks, scorer or benchmark)


def _name(name: str, taken: Sequence[str]) -> str:
    """A name for the phase: it becomes part of URLs and episode ids."""
    plain = "".join(c if c.isalnum() else "-" for c in name).strip("-")
    unused, number = plain, 1
    while unused in taken:
        number += 1
        unused = f"{plain}-{number}"
    return unused
