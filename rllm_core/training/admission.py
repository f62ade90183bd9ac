"""Which groups are sampled when, and which train next: the one rule behind sync and async.

Groups are numbered in the order of the curriculum. With G groups a step and a bound of
`max_staleness` versions between the weights that sampled a group and the weights that it
trains:

- group k is admitted while k < (step + 1 + max_staleness) · G, and k < steps · G: none is
  sampled that could not train;
- a step takes the G oldest finished groups;
- it waits where that would leave a group behind that can then not be trained in time: of
  those left, in order, the i-th trains i // G steps after the next one at the earliest.

`max_staleness = 0` is the synchronous loop. This module is pure: no clock, no tasks.
"""

from attrs import define, field

__all__ = ["Admission"]


@define
class Admission:
    """The state of the rule; `step` counts optimizer steps that are done, of `steps`."""

    groups_per_step: int
    steps: int
    max_staleness: int = 0
    step: int = 0
    next_group: int = 0
    admitted_at: dict[int, int] = field(factory=dict)
    finished: set[int] = field(factory=set)
    trained: set[int] = field(factory=set)

    def admit(self) -> list[int]:
        """The groups that may start now; they count as admitted at the current step."""
        ahead = min(self.step + 1 + self.max_staleness, self.steps)
        limit = ahead * self.groups_per_step
        fresh = [k for k in range(self.next_group, limit) if k not in self.trained]
        self.next_group = max(self.next_group, limit)
        self.admitted_at.update(dict.fromkeys(fresh, self.step))
        return fresh

    def finish(self, group: int) -> None:
        """All rollouts of a group have ended."""
        self.finished.add(group)

    def due(self) -> list[int] | None:
        """The groups of the next step in order, or None while one must be waited for."""
        size = self.groups_per_step
        chosen = sorted(self.finished)[:size]
        left = sorted(self.admitted_at.keys() - set(chosen))
        in_time = (
            self.step + 1 + place // size <= self.admitted_at[group] + self.max_staleness
            for place, group in enumerate(left)
        )
        return chosen if len(chosen) == size and all(in_time) else None

    def train(self, groups: list[int]) -> None:
        """These groups make the step that is now done."""
        self.finished.difference_update(groups)
        for group in groups:
            del self.admitted_at[group]
        self.step += 1

    def skip(self, groups: set[int]) -> None:
        """These groups were trained by an earlier process: never admit them again."""
        self.trained |= groups
