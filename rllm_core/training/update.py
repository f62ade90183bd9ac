"""One optimizer step as a value: what is trained on, with which credit, and its record.

The record (`BatchRow`) is written before the step is taken, so that a killed run can take
the same step again without sampling: `plan` and `replay` make their batch in one way.
"""

from collections.abc import Mapping, Sequence

from attrs import asdict, frozen

from rllm_core.algorithms import Algorithm, Credit, TrajectoryGroup
from rllm_core.backend import OptimParams
from rllm_core.backend.batch import TokenBatch
from rllm_core.store import BatchRow
from rllm_core.training.batches import build_batch
from rllm_core.training.sequences import sequences
from rllm_core.types import Episode, is_value

__all__ = ["Update", "plan", "replay"]


@frozen
class Update:
    """A planned step. An empty batch means that no group carries any signal."""

    batch: TokenBatch
    row: BatchRow
    groups: tuple[TrajectoryGroup, ...]

    @property
    def informative(self) -> float:
        """Share of the groups whose rewards differ."""
        spread = [_spread(group) for group in self.groups]
        return sum(spread) / len(spread) if spread else 0.0


def plan(
    step: int,
    episodes: Mapping[int, Sequence[Episode]],
    algorithm: Algorithm,
    optim: OptimParams,
) -> Update:
    """The step that these groups (by number) make."""
    grouped = [g for members in episodes.values() for g in algorithm.group(members)]
    credits_ = algorithm.credit(grouped)
    row = BatchRow(
        step=step,
        version=step,
        sequences=tuple(f"{c.episode}/{c.trajectory}" for c in credits_),
        credits=[c.advantage for c in credits_],
        groups=tuple(episodes),
        loss={"name": algorithm.loss.policy.name, **asdict(algorithm.loss)},
        optim=asdict(optim),
    )
    return Update(_batch(row, episodes, algorithm), row, tuple(grouped))


def replay(
    row: BatchRow, episodes: Mapping[int, Sequence[Episode]], algorithm: Algorithm
) -> Update:
    """The step that a row records, from the stored episodes of its groups."""
    grouped = tuple(g for members in episodes.values() for g in algorithm.group(members))
    return Update(_batch(row, episodes, algorithm), row, grouped)


def _batch(
    row: BatchRow, episodes: Mapping[int, Sequence[Episode]], algorithm: Algorithm
) -> TokenBatch:
    names = [tuple(name.rsplit("/", 1)) for name in row.sequences]
    credit = {(e, t): Credit(e, t, a) for (e, t), a in zip(names, row.credits, strict=True)}
    numbers = {e.id: group for group, members in episodes.items() for e in members}
    branches = [s for members in episodes.values() for e in members for s in sequences(e)]
    return build_batch(branches, credit, numbers, algorithm.loss.aggregation)


def _spread(group: TrajectoryGroup) -> bool:
    return len({m.reward for m in group.members if is_value(m.reward)}) > 1
