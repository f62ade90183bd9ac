"""Sampling one group: the attempts at one task that an algorithm compares."""

import asyncio
from collections.abc import Callable

from attrs import define, field

from rllm_core.engine import Job, Rollouts, Sampling
from rllm_core.store import RunStore
from rllm_core.training.curriculum import Curriculum
from rllm_core.types import Episode

__all__ = ["PHASE", "GroupRunner"]

PHASE = "train"
"""The store's name for episodes that are trained on."""


@define
class GroupRunner:
    """Runs the rollouts of group k, except those that an earlier process has finished.

    All groups share `slots`, first come first served: older groups are sampled first.
    """

    rollouts: Rollouts
    curriculum: Curriculum
    store: RunStore
    size: int
    sampling: Sampling
    slots: asyncio.Semaphore
    on_episode: Callable[[str, Episode], None]
    stored: dict[int, dict[int, Episode]] = field(factory=dict)

    async def run(self, group: int) -> list[Episode]:
        """All episodes of the group, in order of attempt."""
        finished = self.stored.pop(group, {})
        task, scorer = self.curriculum[group]
        jobs = [
            Job(PHASE, group, attempt, task, scorer, self.sampling)
            for attempt in range(self.size)
            if attempt not in finished
        ]
        for episode in await asyncio.gather(*(self._one(job) for job in jobs)):
            finished[episode.attempt] = episode
        return [finished[attempt] for attempt in range(self.size)]

    async def _one(self, job: Job) -> Episode:
        async with self.slots:
            episode = await self.rollouts.run(job)
        self.store.add_episode(PHASE, job.group, job.attempt, episode)
        self.on_episode(PHASE, episode)
        return episode
