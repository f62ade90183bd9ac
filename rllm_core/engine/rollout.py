"""One rollout's life: session → harness → episode → score.

This is the boundary where plain exceptions of plugins and user code become categories
(`rllm_core.errors`). Only `InfraError` is tried again, on a fresh session; everything else
is what happened, and is kept as such.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from attrs import Factory, evolve, field, frozen

from rllm_core.benchmark import ScoreContext
from rllm_core.engine.assemble import output_of, trajectories
from rllm_core.engine.boundary import guarded, told
from rllm_core.engine.jobs import Job, Sampling
from rllm_core.errors import (
    HarnessError,
    InfraError,
    ModelError,
    RllmError,
    RolloutTimeout,
    ScoreError,
)
from rllm_core.gateway import Gateway, Session, SessionRecord
from rllm_core.harness import Harness, Outcome, RolloutContext
from rllm_core.types import Episode, ErrorRecord, Failed, Score, Stop
from rllm_core.upstream import Endpoint

__all__ = ["Rollouts"]

GRACE = 10.0
"""Seconds that closing a session and other clean-up may take."""


@frozen
class Rollouts:
    """Runs jobs, each to an Episode; shared by evaluation and training.

    `deadline` is how many seconds a rollout may take, its scoring included, which by itself may
    take no more than `score_deadline`; `retries` is how often an `InfraError` is tried again.
    `scoring_roles` are the models that scorers may call (a judge), each with its sampling; an
    agent's key does not open them.
    """

    gateway: Gateway = field(repr=False)
    harness: Harness
    seed: int = 0
    deadline: float = 600.0
    score_deadline: float = 60.0
    retries: int = 2
    context_window: int | None = None
    scoring_roles: Mapping[str, Sampling] = Factory(dict)

    async def run(self, job: Job) -> Episode:
        """The episode of a job. Raises nothing but cancellation."""
        episode = await self._attempt(job, 0)
        for retry in range(1, self.retries + 1):
            if episode.error is None or episode.error.category != InfraError.category:
                break
            episode = await self._attempt(job, retry)
        return episode

    async def _attempt(self, job: Job, retry: int) -> Episode:
        started, clock = time.time(), time.monotonic()
        session = self.gateway.open(
            f"{job.episode_id}.{retry}" if retry else job.episode_id,
            sampling=job.sampling.enforced(),
            seed=job.seed(self.seed),
            deadline=clock + self.deadline,
        )
        try:
            outcome, error = await self._harness(job, session, clock + self.deadline)
        finally:
            record = await asyncio.shield(asyncio.wait_for(session.close(), GRACE))
        if record.stop is Stop.TIMEOUT and (
            error is None or error.category == HarnessError.category
        ):
            error = self._late("its time was up during a model call")
        episode = _episode(job, outcome, error, record)
        episode = evolve(episode, started=started, seconds=time.monotonic() - clock)
        if retry:
            episode = evolve(episode, metrics={**episode.metrics, "retries": retry})
        return await self._scored(job, episode, clock + self.deadline)

    async def _harness(
        self, job: Job, session: Session, deadline: float
    ) -> tuple[Outcome, ErrorRecord | None]:
        context = RolloutContext(
            endpoint_of=session.endpoint,
            attempt=job.attempt,
            deadline=deadline,
            context_window=self.context_window,
            sampling=job.sampling.enforced(),
        )
        outcome = Outcome()
        try:
            async with asyncio.timeout(self.deadline):
                outcome = await guarded(self.harness.run(job.task.public(), context))
            # an agent that holds the loop lets no time-out fire
            late = time.monotonic() > deadline
            return outcome, self._late("it blocked the event loop") if late else None
        except TimeoutError as caught:
            ours = time.monotonic() >= deadline  # else it is the agent's own time-out
            error = self._late() if ours else _record("harness", told(caught), _traceback())
        except RolloutTimeout as caught:
            error = self._late(caught.message)
        except RllmError as caught:
            error = _record(caught.category, str(caught))
        except Exception as caught:  # noqa: BLE001 - the boundary around agents
            error = _record("harness", told(caught), _traceback())
        return outcome, error

    def _late(self, where: str = "") -> ErrorRecord:
        said = f"the rollout did not end within {self.deadline:g} s (run.deadline)"
        return _record(RolloutTimeout.category, f"{said}: {where}" if where else said)

    async def _scored(self, job: Job, episode: Episode, deadline: float) -> Episode:
        if episode.error is not None:
            return episode
        left = deadline - time.monotonic()
        try:
            limit = min(self.score_deadline, left)
            async with asyncio.timeout(limit), self._models(job) as models:
                context = ScoreContext(models=models)
                score = await guarded(job.scorer.score(job.task, episode, context))
            return evolve(episode, score=Score.of(score))
        except TimeoutError:
            message, detail = f"scoring took longer than {self.score_deadline:g} s", ""
            if left < self.score_deadline:
                message = f"scoring did not end within the {self.deadline:g} s of run.deadline"
        except Exception as error:  # noqa: BLE001 - the boundary around scorers
            message, detail = told(error), _traceback()
        failed = _record(ScoreError.category, message, detail)
        return evolve(episode, score=Score(Failed(message)), error=failed)

    @asynccontextmanager
    async def _models(self, job: Job) -> AsyncIterator[dict[str, Endpoint]]:
        """An endpoint for each role that scorers may call, in sessions apart from the agent's."""
        async with AsyncExitStack() as stack:
            endpoints = _Models()
            for role, sampling in self.scoring_roles.items():
                session = self.gateway.open(
                    f"{job.episode_id}.{role}",
                    roles=(role,),
                    sampling=sampling.enforced(),
                    seed=job.seed(self.seed),
                    deadline=time.monotonic() + self.score_deadline,
                )
                stack.push_async_callback(session.close)
                endpoints[role] = session.endpoint(role, role)
            yield endpoints


class _Models(dict[str, Endpoint]):
    """Endpoints by role; one that no model plays is told with how to name it."""

    def __missing__(self, role: str) -> Endpoint:
        raise ScoreError(
            f"the scorer asks for the role {role!r}, which no model of this run plays",
            remedy=f"models.{role}.name=provider/model",
        )


def _traceback() -> str:
    try:
        return traceback.format_exc()
    except Exception:  # noqa: BLE001 - an exception that cannot be printed is still one
        return "(its traceback cannot be printed)"


def _record(category: str, message: str, detail: str = "") -> ErrorRecord:
    return ErrorRecord(category, message.strip(), detail)


def _episode(
    job: Job, outcome: Outcome, error: ErrorRecord | None, record: SessionRecord
) -> Episode:
    error = _attributed(error, record)
    counts: dict[str, Any] = {k: float(v) for k, v in record.counts.items() if v}
    return Episode(
        id=job.episode_id,
        task_id=job.task.id,
        attempt=job.attempt,
        trajectories=trajectories(record.steps, outcome.notes),
        output=output_of(outcome, record.steps),
        stop=_stop(error, record, outcome),
        error=error,
        metrics={**counts, **outcome.metrics},
        metadata={**outcome.metadata, **job.metadata},
    )


def _attributed(error: ErrorRecord | None, record: SessionRecord) -> ErrorRecord | None:
    """Whose failure it was: the gateway knows what the agent's exception cannot say.

    A typed stop explains an agent that gave up on it. A failed model call explains an agent
    that raised, whatever it made of the reply, or one that ended "well" without an answer.
    """
    if error is not None and error.category not in (HarnessError.category, ModelError.category):
        return error
    if record.stop is not None:
        return None
    if record.errors and (error is not None or not record.steps):
        return record.errors[-1]
    return error


def _stop(error: ErrorRecord | None, record: SessionRecord, outcome: Outcome) -> Stop:
    if record.stop is not None:
        return record.stop
    if error is None:
        return outcome.stop
    return Stop.TIMEOUT if error.category == RolloutTimeout.category else Stop.ERROR
