"""Evaluating: every task of a set, some attempts at each, and a summary."""

from collections.abc import Sequence

from attrs import define, field, frozen

from rllm_core.engine.jobs import Job, Sampling, Scorer
from rllm_core.engine.observer import Observer
from rllm_core.engine.pool import bounded
from rllm_core.engine.rollout import Rollouts
from rllm_core.errors import RllmError
from rllm_core.statistics import Summary, summarize
from rllm_core.store import RunStore
from rllm_core.types import Episode, Task

__all__ = ["Evaluation", "TaskSet", "TooManyErrors"]

AS_ASKED = Sampling()
"""Sampling as the agent asks for it."""

ENOUGH_TO_JUDGE = 20
"""Rollouts that must have ended before their share of errors can stop a run."""


class TooManyErrors(RllmError):  # noqa: N818 - says what happened
    """So many rollouts failed that going on would only waste time or money."""

    category = "errors"


@frozen
class TaskSet:
    """Tasks with the scorer that grades them, under the name that results carry."""

    name: str
    tasks: Sequence[Task] = field(repr=False)
    scorer: Scorer = field(repr=False)


@define
class Evaluation:
    """Evaluates task sets, one phase each, leaving out what an earlier process finished."""

    rollouts: Rollouts
    store: RunStore
    observer: Observer
    concurrency: int
    max_error_share: float = 1.0

    async def run(
        self, phase: str, task_set: TaskSet, *, attempts: int = 1, sampling: Sampling = AS_ASKED
    ) -> Summary:
        """The summary of all rollouts of the phase, those of earlier processes included."""
        finished = self.store.finished(phase)
        jobs = [
            Job(phase, number, attempt, task, task_set.scorer, sampling)
            for number, task in enumerate(task_set.tasks)
            for attempt in range(attempts)
            if (number, attempt) not in finished
        ]
        total = len(task_set.tasks) * attempts
        self.observer.phase_started(phase, total, total - len(jobs))
        await self._all(phase, jobs)
        await self.store.flush()
        summary = summarize(self.store.attempts(phase))
        self.observer.phase_finished(phase, summary)
        return summary

    async def _all(self, phase: str, jobs: list[Job]) -> None:
        ended = failed = 0
        places = {job.episode_id: job for job in jobs}
        async for episode in bounded(self.rollouts.run, jobs, self.concurrency):
            job = places[episode.id]
            self.store.add_episode(phase, job.group, job.attempt, episode)
            self.observer.episode_finished(phase, episode)
            ended += 1
            failed += episode.error is not None
            if ended >= min(ENOUGH_TO_JUDGE, len(jobs)) and failed > self.max_error_share * ended:
                raise TooManyErrors(
                    f"{failed} of {ended} rollouts failed; the last one: {_told(episode)}",
                    remedy="mend that and use --resume, or raise run.max_error_share",
                )


def _told(episode: Episode) -> str:
    error = episode.error
    return "no error" if error is None else f"{error.category}: {error.message}"
