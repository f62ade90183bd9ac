"""The loop: admit groups, wait for those that are due, train on them, publish, repeat.

The same loop is synchronous (`max_staleness = 0`) and asynchronous; `Admission` alone knows
the difference. Every step is recorded before it is taken and `restore` takes recorded steps
again, so a run killed at any instant goes on where it was.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen

from rllm_core.algorithms import Algorithm
from rllm_core.backend import LoadedModel, OptimParams
from rllm_core.backend.batch import TokenBatch
from rllm_core.engine.evaluate import TooManyErrors
from rllm_core.engine.pool import settle
from rllm_core.errors import BackendError
from rllm_core.gateway import Gateway
from rllm_core.store import BatchRow, RunStore
from rllm_core.training.admission import Admission
from rllm_core.training.groups import PHASE, GroupRunner
from rllm_core.training.metrics import step_metrics
from rllm_core.training.update import Update, plan, replay
from rllm_core.types import Episode

__all__ = ["Loop", "LoopSettings"]

ROLE = "policy"


@frozen
class LoopSettings:
    """How long, how fast, how often; see `RunSettings` for what each means."""

    steps: int
    groups_per_step: int
    max_staleness: int
    optim: OptimParams
    eval_every: int = 0
    checkpoint_every: int = 10
    keep_checkpoints: int = 2
    idle_steps: int = 20
    max_error_share: float = 1.0
    step_deadline: float = 3600.0


@define
class Loop:
    """The state of a training run between two steps."""

    loaded: LoadedModel
    algorithm: Algorithm
    groups: GroupRunner
    gateway: Gateway
    store: RunStore
    settings: LoopSettings
    validate: Callable[[str], Awaitable[None]]
    on_step: Callable[[int, Mapping[str, float]], None]
    admission: Admission = field(init=False)
    idle: int = 0
    _running: dict[int, asyncio.Task[list[Episode]]] = field(factory=dict)
    _episodes: dict[int, list[Episode]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        s = self.settings
        self.admission = Admission(s.groups_per_step, s.steps, s.max_staleness)

    async def run(self) -> str:
        """Train to the end; returns why it ended, in words."""
        try:
            await self._publish()
            await self._validate_if_due()
            while self.admission.step < self.settings.steps:
                if self.idle >= self.settings.idle_steps:
                    return (
                        f"the last {self.idle} steps had no group whose rewards differ: "
                        "there was nothing left to learn from"
                    )
                await self._step()
            return f"all {self.settings.steps} steps are done"
        finally:
            await settle(self._running.values())

    async def restore(self) -> None:
        """Go to where an earlier process of this run was: checkpoint, then recorded steps."""
        checkpoints = self.store.checkpoints()
        start = 0
        if checkpoints:
            start, directory = checkpoints[-1]
            await self.loaded.model.load(directory)
        rows = list(self.store.batches())
        self._sort_stored({k for row in rows for k in row.groups})
        reported = {step for step, _ in self.store.metrics()}
        for row in rows:
            if row.step >= start:
                await self._replay(row, reported=row.step in reported)
        self.idle = _idle(rows)
        self.admission.step = len(rows)
        self.admission.skip({k for row in rows for k in row.groups})

    def _sort_stored(self, trained: set[int]) -> None:
        for episode in self.store.episodes(PHASE):
            group = int(episode.id.split("-")[1])
            if group not in trained and episode.error is None:
                self.groups.stored.setdefault(group, {})[episode.attempt] = episode

    async def _replay(self, row: BatchRow, *, reported: bool) -> None:
        """Take a recorded step; a run killed within the step has not told its metrics yet."""
        episodes = {k: list(self.store.episodes(PHASE, k)) for k in row.groups}
        update = replay(row, episodes, self.algorithm)
        trained = await self._train(update.batch, OptimParams(**row.optim))
        if not reported:
            self._report(row.step, episodes, update, trained)

    async def _step(self) -> None:
        started = time.monotonic()
        step, due = self.admission.step, await self._due()
        episodes = {k: self._episodes.pop(k) for k in due}
        self._check_errors(episodes)
        update = plan(step, episodes, self.algorithm, self.settings.optim)
        await self.store.add_batch(step, update.row)
        trained = await self._train(update.batch, self.settings.optim)
        self.idle = 0 if trained else self.idle + 1
        self.admission.train(due)
        await self._publish()
        self._report(step, episodes, update, {**trained, "seconds": time.monotonic() - started})
        await self._checkpoint_if_due()
        await self._validate_if_due()

    async def _due(self) -> list[int]:
        """Admit what may start, and wait for the groups of this step."""
        while True:
            for group in self.admission.admit():
                self._running[group] = asyncio.ensure_future(self.groups.run(group))
            if (due := self.admission.due()) is not None:
                return due
            done, _ = await asyncio.wait(
                self._running.values(), return_when=asyncio.FIRST_COMPLETED
            )
            for group in [k for k, task in self._running.items() if task in done]:
                self._episodes[group] = self._running.pop(group).result()
                self.admission.finish(group)

    async def _train(self, batch: TokenBatch, optim: OptimParams) -> dict[str, float]:
        """One optimizer step; no metrics where there was nothing to train on."""
        if not len(batch):
            return {}
        model = self.loaded.model
        try:
            async with asyncio.timeout(self.settings.step_deadline):
                outputs, stepped = await asyncio.gather(  # both are queued before either is done
                    model.forward_backward(batch, self.algorithm.loss), model.optim_step(optim)
                )
        except TimeoutError:
            raise BackendError(
                f"a training step took longer than {self.settings.step_deadline:g} s",
                remedy="fewer or shorter sequences a step, or a faster machine",
            ) from None
        return {**outputs.metrics, **stepped, "loss": outputs.loss}

    async def _publish(self) -> None:
        """Switch the policy to the current weights; calls that arrive meanwhile wait.

        The weight version is the number of steps that are done.
        """
        await self.gateway.hold(ROLE)
        try:
            upstream = await self.loaded.model.publish(self.admission.step)
            self.gateway.route(ROLE, upstream, renderer=self.loaded.renderer)
        finally:
            self.gateway.release(ROLE)

    def _check_errors(self, episodes: Mapping[int, list[Episode]]) -> None:
        flat = [e for members in episodes.values() for e in members]
        failed = [e.error for e in flat if e.error is not None]
        if len(failed) > self.settings.max_error_share * len(flat):
            raise TooManyErrors(
                f"{len(failed)} of {len(flat)} rollouts of a step failed; the last one: "
                f"{failed[-1].category}: {failed[-1].message}",
                remedy="mend that and use --resume, or raise run.max_error_share",
            )

    def _report(
        self,
        step: int,
        episodes: Mapping[int, list[Episode]],
        update: Update,
        measured: Mapping[str, float],
    ) -> None:
        flat = [e for members in episodes.values() for e in members]
        metrics = step_metrics(flat, update, measured)
        self.store.add_metrics(step, metrics)
        self.on_step(step, metrics)

    async def _checkpoint_if_due(self) -> None:
        step, every = self.admission.step, self.settings.checkpoint_every
        if every and (step % every == 0 or step == self.settings.steps):
            await self.checkpoint(step)

    async def checkpoint(self, step: int) -> Path:
        """Save everything that `restore` needs, atomically."""
        directory = self.store.checkpoint_dir(step)
        await self.loaded.model.save(directory)
        self.store.add_checkpoint(step, directory)
        self.store.prune(self.settings.keep_checkpoints)
        return directory

    async def _validate_if_due(self) -> None:
        step, every = self.admission.step, self.settings.eval_every
        if step == 0:
            await self.validate("before")
        elif step == self.settings.steps:
            await self.validate("after")
        elif every and step % every == 0:
            await self.validate(f"step{step}")


def _idle(rows: Sequence[BatchRow]) -> int:
    """How many of the last steps had no credit to give."""
    idle = itertools.takewhile(lambda row: not any(row.credits), reversed(rows))
    return sum(1 for _ in idle)
