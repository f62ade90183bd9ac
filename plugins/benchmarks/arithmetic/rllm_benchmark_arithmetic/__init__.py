"""Arithmetic: generated questions with one number as the answer, for training in minutes.

Levels, from hardest to easiest for a model of 135M parameters: `add2` (two-digit sums), `add1`
(one-digit sums), `sort2` (the larger of two), `tool` (a sum by calling a tool). `copy1` and
`succ` are for the built-in random model `tiny`.

Every question is a function of level, split and index, so that a task never changes. Test tasks
are all different. A split of add1 has at most 97 questions, which training draws from too
(`holdout=true` keeps a fifth of them apart); add2 and sort2 always keep theirs apart.
"""

import hashlib
import random
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen, validators

from rllm_benchmark_arithmetic.levels import LEVELS, Numbers
from rllm_core import hookimpl
from rllm_core.benchmark import GeneratedRows, RowBenchmark, Task
from rllm_core.errors import ConfigError

__all__ = ["Arithmetic"]

TEST_SIZE = 128
HELD_OUT_SHARE = 0.2


class Arithmetic(RowBenchmark):
    """Sums and comparisons of small numbers."""

    category = "math"
    splits = {"train": "train", "test": "test"}
    max_tokens = 64

    @frozen
    class Options:
        """Options of arithmetic."""

        level: str = field(
            default="add1",
            validator=validators.in_(tuple(LEVELS)),
            metadata={"doc": f"one of {', '.join(LEVELS)}"},
        )
        train_size: int = field(
            default=10_000,
            validator=validators.ge(1),
            metadata={"doc": "tasks of the train split; questions may recur"},
        )
        test_size: int | None = field(
            default=None,
            validator=validators.optional(validators.ge(1)),
            metadata={"doc": f"tasks of the test split; left out: {TEST_SIZE}, or all there are"},
        )
        holdout: bool | None = field(
            default=None,
            metadata={
                "doc": "keep a fifth of the questions out of training, and test on those; "
                "left out: as the level does"
            },
        )

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.level = LEVELS[self.options.level]
        self.pools = self._pools()
        self.test_questions = self._test_questions()
        sizes = {"train": self.options.train_size, "test": len(self.test_questions)}
        self.source = GeneratedRows(self._row, sizes)

    def task(self, row: Mapping[str, Any]) -> Task:
        """The question about a row's numbers."""
        numbers = tuple(row["numbers"])
        return Task.of(
            self.level.messages(numbers),
            private={"answer": str(self.level.answer(numbers))},
            metadata={"level": self.level.name},
            tools=self.level.tools,
        )

    def grade(self, task: Task, output: str) -> bool:
        """The answer and nothing else; a full stop after it is forgiven."""
        given = output.strip().rstrip(".").rstrip()
        return given == str(task.private["answer"])

    def _row(self, split: str, index: int) -> Mapping[str, Any]:
        if split == "test":
            numbers = self.test_questions[index]
        else:
            # A hash of its index draws a training question, so that none depends on another.
            drawn = hashlib.blake2b(f"{self.level.name} train {index}".encode(), digest_size=8)
            pool = self.pools["train"]
            numbers = pool[int.from_bytes(drawn.digest()) % len(pool)]
        return {"level": self.level.name, "numbers": list(numbers)}

    def _pools(self) -> dict[str, tuple[Numbers, ...]]:
        """What each split draws from."""
        asked = self.level.asked
        holdout = self.options.holdout
        if not (self.level.holdout if holdout is None else holdout):
            return {"train": asked, "test": asked}
        order = random.Random(f"{self.level.name} holdout")  # noqa: S311 - no secret
        mixed = order.sample(asked, len(asked))
        cut = int(len(mixed) * HELD_OUT_SHARE)
        return {"train": tuple(mixed[cut:]), "test": tuple(mixed[:cut])}

    def _test_questions(self) -> list[Numbers]:
        pool, wanted = self.pools["test"], self.options.test_size
        if wanted is not None and wanted > len(pool):
            raise ConfigError(
                f"benchmark.test_size: level {self.level.name} has {len(pool)} test questions, "
                f"so it cannot be {wanted}"
            )
        draw = random.Random(f"{self.level.name} test")  # noqa: S311 - no secret
        return draw.sample(pool, wanted or min(TEST_SIZE, len(pool)))


@hookimpl
def rllm_benchmark() -> type[Arithmetic]:
    """The class behind `rllm eval arithmetic`."""
    return Arithmetic
