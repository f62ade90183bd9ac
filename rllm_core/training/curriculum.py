"""Which task a group works on: the split in a new order every epoch, for ever."""

import functools
import random
from collections.abc import Sequence

from attrs import field, frozen

from rllm_core.engine.jobs import Scorer
from rllm_core.types import Task

__all__ = ["Curriculum"]


@frozen
class Curriculum:
    """Tasks with their scorers; group k's task is a function of the seed and k alone."""

    tasks: Sequence[tuple[Task, Scorer]] = field(repr=False)
    seed: int = 0

    def __getitem__(self, group: int) -> tuple[Task, Scorer]:
        epoch, position = divmod(group, len(self.tasks))
        return self.tasks[_order(len(self.tasks), self.seed, epoch)[position]]


@functools.lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)  # noqa: S311 - an order, not a secret
    return order
