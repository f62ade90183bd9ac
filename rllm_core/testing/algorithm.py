"""What every algorithm must keep to, as tests: subclass `AlgorithmConformance`.

Credit is pure and belongs to members, not to places: order does not matter, ungraded members
get none, and what a group gives no reason to prefer is left alone.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rllm_core.algorithms import Algorithm, Credit, Member, TrajectoryGroup
from rllm_core.algorithms.losses import AGGREGATIONS
from rllm_core.types import Episode, Failed, Graded, Missing, Score, Trajectory

__all__ = ["AlgorithmConformance", "group_of"]


def group_of(*rewards: Graded, task: str = "t", name: str = "policy") -> TrajectoryGroup:
    """A group whose members have these rewards, of episodes e0, e1 and so on."""
    members = (Member(f"{task}-e{i}", name, reward) for i, reward in enumerate(rewards))
    return TrajectoryGroup(task, name, tuple(members))


class AlgorithmConformance:
    """Subclass it, set `algorithm`, and pytest collects the tests."""

    algorithm: ClassVar[type[Algorithm]]
    options: ClassVar[Mapping[str, Any]] = {}
    group_relative: ClassVar[bool] = True
    """Whether credit compares the members of a group; false skips the tests of that."""

    def make(self) -> Algorithm:
        """The algorithm under test."""
        return self.algorithm(self.algorithm.Options(**self.options))

    def credit(self, *groups: TrajectoryGroup) -> dict[tuple[str, str], float]:
        """Advantages by (episode, trajectory)."""
        credited: Sequence[Credit] = self.make().credit(groups)
        return {(c.episode, c.trajectory): c.advantage for c in credited}

    def test_the_loss_has_a_name(self) -> None:
        """Backends are asked for losses by name before a run starts."""
        assert self.make().loss.needs
        assert self.make().loss.aggregation in AGGREGATIONS

    def test_groups_are_by_task_and_agent(self) -> None:
        """Attempts at one task by one agent are compared; a trajectory's own reward counts."""
        two = (Trajectory("solver"), Trajectory("critic", reward=0.25))
        episodes = [
            Episode("a", "t1", trajectories=two, score=Score(1.0)),
            Episode("b", "t2", trajectories=two, score=Score(0.0)),
            Episode("c", "t1", attempt=1, trajectories=two, score=Score(Missing("no judge"))),
        ]
        groups = {(g.task, g.name): g for g in self.make().group(episodes)}
        assert set(groups) == {(t, n) for t in ("t1", "t2") for n in ("solver", "critic")}
        solver = groups["t1", "solver"].members
        assert [(m.episode, m.reward) for m in solver] == [("a", 1.0), ("c", Missing("no judge"))]
        assert [m.reward for m in groups["t1", "critic"].members] == [0.25, 0.25]

    def test_every_graded_member_has_one_finite_credit(self) -> None:
        """None is lost, none is doubled, whatever the size of the rewards."""
        for rewards in ((0.0, 1.0), (1e12, -1e12, 3.0), (1e-12, 2e-12), (0.1,) * 8):
            credits_ = self.credit(group_of(*rewards))
            assert len(credits_) == len(rewards)
            assert all(math.isfinite(a) for a in credits_.values())

    def test_ungraded_members_are_left_out(self) -> None:
        """They have no credit, and the others are credited as if they were not there."""
        mixed = self.credit(group_of(1.0, Missing("no judge"), 0.0, Failed("crash"), 0.5))
        alone = self.credit(group_of(1.0, 0.0, 0.5))
        assert list(mixed.values()) == list(alone.values())
        assert {episode for episode, _ in mixed} == {"t-e0", "t-e2", "t-e4"}
        assert self.credit(group_of(Missing("a"), Failed("b"))) == {}
        assert self.credit() == {}

    def test_order_does_not_matter(self) -> None:
        """Members and groups may come in any order."""
        groups = [group_of(*(i * k % 5 / 4 for i in range(8)), task=f"t{k}") for k in (1, 2, 3)]
        expected = self.credit(*groups)
        mix = random.Random(0)  # noqa: S311 - an order, not a secret
        for _ in range(5):
            mixed = [
                TrajectoryGroup(g.task, g.name, tuple(mix.sample(g.members, len(g.members))))
                for g in mix.sample(groups, len(groups))
            ]
            got = self.credit(*mixed)
            assert got.keys() == expected.keys()
            assert all(math.isclose(got[k], expected[k], abs_tol=1e-9) for k in expected)

    def test_a_group_without_spread_has_no_credit(self) -> None:
        """Equal rewards give no reason to prefer any member; rounding must not make one up."""
        if self.group_relative:
            for reward in (0.0, 1.0, 0.1, 1 / 3, 1e9 + 0.1):
                assert set(self.credit(group_of(*[reward] * 7)).values()) == {0.0}

    def test_a_group_of_one_has_no_credit(self) -> None:
        """There is nothing to compare it with."""
        if self.group_relative:
            assert set(self.credit(group_of(1.0)).values()) == {0.0}
            assert set(self.credit(group_of(1.0, Missing("no judge"))).values()) == {0.0}

    def test_better_members_get_more(self) -> None:
        """Within a group, credit rises with the reward, and sums to zero."""
        if self.group_relative:
            advantages = list(self.credit(group_of(0.0, 0.25, 0.5, 1.0)).values())
            assert advantages == sorted(advantages)
            assert advantages[0] < 0 < advantages[-1]
            assert math.isclose(sum(advantages), 0, abs_tol=1e-9)
