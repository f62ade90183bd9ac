"""Algorithms: what turns scores into credit.

An algorithm knows scores and tokens, neither transport nor model. It groups trajectories,
gives each a credit, and names the loss that the credit feeds. Everything here is pure.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from rllm_core.algorithms.losses import LossSpec
from rllm_core.types import Episode, Graded, Trajectory, is_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Algorithm", "Credit", "Member", "TrajectoryGroup", "per_group"]


@frozen
class Member:
    """One trajectory of a group: where it is from, and the reward that it got."""

    episode: str
    trajectory: str
    reward: Graded

    @property
    def graded(self) -> bool:
        """Whether there is a number."""
        return is_value(self.reward)


@frozen
class TrajectoryGroup:
    """Trajectories that are compared with each other: attempts at one task by one agent."""

    task: str
    name: str
    members: tuple[Member, ...]


@frozen
class Credit:
    """What one trajectory's sampled tokens are credited with.

    `advantage` is one number for all of them. An ungraded member has no credit at all: it
    is left out of the batch.
    """

    episode: str
    trajectory: str
    advantage: float


class Algorithm:
    """Base of all algorithms. `options` is an instance of the class's `Options`."""

    min_group: ClassVar[int] = 1

    @frozen
    class Options:
        """Options that users set under `[algorithm]`."""

    def __init__(self, options: Any = None) -> None:
        self.options: Any = options if options is not None else self.Options()

    @property
    def loss(self) -> LossSpec:
        """The loss that the credit feeds."""
        raise NotImplementedError

    def group(self, episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
        """Groups by task and trajectory name, in order of first appearance."""
        groups: dict[tuple[str, str], list[Member]] = {}
        for episode in episodes:
            for trajectory in episode.trajectories:
                member = Member(episode.id, trajectory.name, _reward(episode, trajectory))
                groups.setdefault((episode.task_id, trajectory.name), []).append(member)
        return [TrajectoryGroup(*key, tuple(members)) for key, members in groups.items()]

    def credit(self, batch: Sequence[TrajectoryGroup]) -> list[Credit]:
        """A credit for each graded member of each group."""
        raise NotImplementedError


def _reward(episode: Episode, trajectory: Trajectory) -> Graded:
    """What the scorer gave this agent by name, else what its harness did, else the episode's."""
    named = {} if episode.score is None else episode.score.trajectories
    if trajectory.name in named:
        return named[trajectory.name]
    return episode.reward if trajectory.reward is None else trajectory.reward


def per_group(
    batch: Sequence[TrajectoryGroup],
    advantage: "Callable[[NDArray[np.float64]], NDArray[np.float64]]",
) -> list[Credit]:
    """Apply a function rewards_G → advantages_G to the graded members of each group."""
    import numpy as np

    credited: list[Credit] = []
    for group in batch:
        graded = [m for m in group.members if m.graded]
        if graded:
            values_G = advantage(np.array([m.reward for m in graded], dtype=np.float64))
            credited += [
                Credit(m.episode, m.trajectory, float(a))
                for m, a in zip(graded, values_G, strict=True)
            ]
    return credited
