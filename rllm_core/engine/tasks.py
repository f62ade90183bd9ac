"""From a checked benchmark table to the tasks and the scorer of a phase."""

from collections.abc import Sequence

from rllm_core.benchmark import Benchmark
from rllm_core.benchmark.selection import select
from rllm_core.config import BenchmarkTable
from rllm_core.engine.evaluate import TaskSet
from rllm_core.engine.jobs import Scorer
from rllm_core.harness import Harness

__all__ = ["task_set"]


def task_set(
    table: BenchmarkTable,
    benchmark: Benchmark,
    *,
    purpose: str,
    harness: Harness,
    scorer: Scorer | None = None,
    seed: int = 0,
    taken: Sequence[str] = (),
) -> TaskSet:
    """The tasks that the table asks for, under a name that is not in `taken`.

    `purpose` ("train" or "eval") picks the split where the table names none. Raises
    ConfigError where nothing is left, or where the harness cannot work on one of the tasks.
    """
    split = table.split or benchmark.default_splits[purpose]
    tasks = select(
        benchmark.tasks(split),
        max=table.max,
        skip=table.skip,
        ids=table.ids,
        shuffle=table.shuffle,
        seed=seed,
    )
    for task in tasks:
        harness.check(task)
    return TaskSet(_name(table, taken), tasks, scorer or benchmark)


def _name(table: BenchmarkTable, taken: Sequence[str]) -> str:
    """A name for the phase: it becomes part of URLs and episode ids."""
    plain = "".join(c if c.isalnum() else "-" for c in (table.use or "tasks")).strip("-")
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name
