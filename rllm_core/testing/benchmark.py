"""What every benchmark must keep to, as tests: subclass `BenchmarkConformance`.

Stable and unique ids, gold that scores full marks, noise that scores none, a scorer that gives
the same answer twice and is done in time, tasks whose gold does not reach the agent.
"""

import itertools
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rllm_core.benchmark import Benchmark, HubRows, ScoreContext
from rllm_core.serialize import from_json, to_json
from rllm_core.types import Episode, Score, Task, is_value

__all__ = ["BenchmarkConformance"]


class BenchmarkConformance:
    """Subclass it, set `benchmark`, and pytest collects the tests."""

    benchmark: ClassVar[type[Benchmark]]
    options: ClassVar[Mapping[str, Any]] = {}
    """Options to make it with: a local file, so that no test needs a network."""
    splits: ClassVar[Sequence[str] | None] = None
    """Splits to test; None: all."""
    sample: ClassVar[int] = 25
    """Tasks of each split that are looked at."""
    seconds: ClassVar[float] = 5.0
    """Time that scoring one output may take, a very long one included."""
    full_marks: ClassVar[float] = 1.0

    def gold(self, task: Task) -> str:
        """An output that deserves full marks; override it where the answer is not the output."""
        return str(task.private["answer"])

    def make(self) -> Benchmark:
        """The benchmark under test."""
        return self.benchmark(self.benchmark.Options(**self.options))

    def tasks(self) -> list[Task]:
        """The sample, over all splits that are tested."""
        benchmark = self.make()
        names = self.splits if self.splits is not None else tuple(benchmark.splits)
        return [t for s in names for t in itertools.islice(benchmark.tasks(s), self.sample)]

    async def score(self, task: Task, output: str) -> Score:
        """Score one output in place of an agent's."""
        episode = Episode("conformance", task.id, output=output)
        return await self.make().score(task, episode, ScoreContext())

    def test_it_has_splits_and_its_defaults_are_among_them(self) -> None:
        """Training and evaluation know what to use when the user names no split."""
        assert self.benchmark.splits
        assert set(self.benchmark.default_splits) == {"train", "eval"}
        assert set(self.benchmark.default_splits.values()) <= set(self.benchmark.splits)

    def test_a_source_on_the_hub_is_pinned_and_licensed(self) -> None:
        """A branch name would let the rows change under a run."""
        source = getattr(self.benchmark, "source", None)
        if isinstance(source, HubRows):
            assert re.fullmatch("[0-9a-f]{40}", source.revision)
            assert source.licence

    def test_tasks_are_the_same_every_time(self) -> None:
        """A resumed run finds the tasks that it left."""
        assert self.tasks()
        assert self.tasks() == self.tasks()

    def test_ids_are_unique(self) -> None:
        """In each split and, since they name it, across splits."""
        ids = [task.id for task in self.tasks()]
        assert all(ids)
        assert len(set(ids)) == len(ids)

    def test_tasks_ask_something_and_survive_json(self) -> None:
        """No empty prompts, and nothing that the store could not hold."""
        for task in self.tasks():
            assert task.text.strip()
            assert from_json(Task, json.loads(json.dumps(to_json(task)))) == task

    async def test_gold_scores_full_marks(self) -> None:
        """The reference answer is right."""
        for task in self.tasks():
            score = await self.score(task, self.gold(task))
            assert score.value == self.full_marks, f"{task.id}: gold scored {score.value}"

    async def test_empty_and_echoed_outputs_score_nothing(self) -> None:
        """Saying nothing, or saying the question again, earns nothing."""
        for task in self.tasks():
            for output in ("", " \n", task.text, task.messages[-1]["content"]):
                score = await self.score(task, output if isinstance(output, str) else "")
                assert score.value == 0.0, f"{task.id}: {output!r:.60} scored {score.value}"

    async def test_other_tasks_golds_score_nothing(self) -> None:
        """A gold answer is right for its own question only."""
        tasks = self.tasks()
        for task, other in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
            if self.gold(task) != self.gold(other) and task.private != other.private:
                score = await self.score(task, self.gold(other))
                assert score.value == 0.0, f"{task.id}: the gold of {other.id} scored"

    async def test_scoring_is_deterministic(self) -> None:
        """The same output has the same score twice."""
        for task in self.tasks()[:5]:
            for output in (self.gold(task), "something else 12"):
                assert await self.score(task, output) == await self.score(task, output)

    async def test_scoring_ends_in_time(self) -> None:
        """However long and odd the output is."""
        task = self.tasks()[0]
        for output in ("1," * 100_000, "(" * 100_000, "#### " * 50_000, "\x00\ud800é" * 50_000):
            begun = time.monotonic()
            score = await self.score(task, output)
            assert time.monotonic() - begun < self.seconds
            assert score.value == 0.0 or not is_value(score.value)

    def test_the_gold_does_not_reach_the_agent(self) -> None:
        """What a harness is handed has no private part, and the rest does not repeat it."""
        for task in self.tasks():
            public = to_json(task.public())
            assert not public["private"]
            for value in task.private.values():
                assert value not in task.metadata.values()
