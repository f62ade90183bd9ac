"""Which groups are sampled when, and which train next: the one rule behind sync and async.

Groups are numbered in the order of the curriculum. With G groups a step and a bound of
`max_staleness` versions between the weights that sampled a group and the weights that it
trains:

- group k is admitted while k < (step + 1 + max_staleness) · G;
- a step takes the G oldest finished groups;
- it waits for every group that would break the bound if it were left for the next step:
  one admitted at step a with step − a ≥ max_staleness.

`max_staleness = 0` is the synchronous loop. This module is pure: no clock, no tasks.
"""

from attrs import define, field

__all__ = ["Admission"]


@define
class Admission:
    """The state of the rule; `step` counts optimizer steps that are done."""

    groups_per_step: int
    max_staleness: int = 0
    step: int = 0
    next_group: int = 0
    admitted_at: dict[int, int] = field(factory=dict)
    finished: set[int] = field(factory=set)
    trained: set[int] = field(factory=set)

    def admit(self) -> list[int]:
        """The groups that may start now; they count as admitted at the current step."""
        limit = (self.step + 1 + self.max_staleness) * self.groups_per_step
        fresh = [k for k in range(self.next_group, limit) if k not in self.trained]
        self.next_group = max(self.next_group, limit)
        self.admitted_at.update(dict.fromkeys(fresh, self.step))
        return fresh

    def finish(self, group: int) -> None:
        """All rollouts of a group have ended."""
        self.finished.add(group)

    def due(self) -> list[int] | None:
        """The groups of the next step in order, or None while one must be waited for."""
        must = {k for k, at in self.admitted_at.items() if self.step - at >= self.max_staleness}
        if must - self.finished or len(self.finished) < self.groups_per_step:
            return None
        return sorted(self.finished)[: self.groups_per_step]

    def train(self, groups: list[int]) -> None:
        """These groups make the step that is now done."""
        self.finished.difference_update(groups)
        for group in groups:
            del self.admitted_at[group]
        self.step += 1

    def skip(self, groups: set[int]) -> None:
        """These groups were trained by an earlier process: never admit them again."""
        self.trained |= groups
