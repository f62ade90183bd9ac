"""Several workers as one upstream: the calls of a session go where its prefix is cached.

A session stays with the worker that got its first call, while that one is well; a new session
goes to the worker with the fewest calls in flight. A worker that refuses, cuts a connection or
answers 429 or 503 is left alone for a while (as long as it asked, else a time that doubles), and
the call is repeated on another one at once; where there is none, the call waits. A plain 500 is
repeated a few times, on another worker where there is one, but harms no other call. Workers are
added and removed while calls run, and only the sessions of a removed one move.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Self

from attrs import define, field

from rllm_core.errors import ConfigError, ModelError
from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt, Upstream
from rllm_core.upstream.faults import WorkerFault

__all__ = ["WorkerPool"]

REMEMBERED = 1 << 16
"""Sessions whose worker is remembered; beyond it the longest unused is forgotten."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
CLOSE_SECONDS = 10.0
TRIES = 3
"""How often a call that makes workers answer 500 is sent."""


@define(eq=False)
class _Worker:
    """One worker: how busy it is, and until when it is left alone (monotonic seconds)."""

    name: str
    upstream: Upstream
    inflight: int = 0
    sessions: int = 0
    faults: int = 0
    resting_until: float = 0.0

    def rest(self, asked: float | None) -> None:
        self.faults += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.faults - 1))
        self.resting_until = time.monotonic() + (pause if asked is None else asked)

    def well(self) -> None:
        self.faults, self.resting_until = 0, 0.0


@define
class _Call:
    """One call on its way to a worker: until when it waits, and what went wrong so far."""

    session: str
    give_up: float
    fault: WorkerFault | None = None
    upset: list[_Worker] = field(factory=list)


@define(eq=False)
class WorkerPool:
    """An `Upstream` over named workers; use it as `async with`, or call `start` and `close`.

    `patience` is how many seconds one call may go without a worker that takes it before its last
    fault is raised. `check_every` is the interval of health checks in seconds (0: none); a worker
    that has `healthy()` is asked. Closing the pool closes its workers.
    """

    workers: Mapping[str, Upstream] = field(factory=dict)
    patience: float = 60.0
    check_every: float = 5.0
    retried: int = field(default=0, init=False)
    _workers: dict[str, _Worker] = field(factory=dict, init=False, repr=False)
    _home: OrderedDict[str, _Worker] = field(factory=OrderedDict, init=False, repr=False)
    _checking: asyncio.Task[None] | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for name, upstream in self.workers.items():
            self.add(name, upstream)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin the health checks."""
        if self.check_every and self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check())

    async def close(self) -> None:
        """End the health checks and close the workers; safe to call twice."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking], timeout=CLOSE_SECONDS)
            self._checking = None
        for worker in self._workers.values():
            await _close(worker.upstream)

    def add(self, name: str, upstream: Upstream) -> Upstream | None:
        """Add a worker; one of a name that is there takes its place, sessions included.

        Returns the one that was replaced (by new weights, say), for its owner to close: calls may
        still be in flight on it.
        """
        there = self._workers.setdefault(name, _Worker(name, upstream))
        replaced, there.upstream = there.upstream, upstream
        there.well()
        return None if replaced is upstream else replaced

    async def remove(self, name: str) -> None:
        """Take a worker out and close it: its sessions move, all others stay where they are.

        Its calls in flight are cut, and repeated elsewhere.
        """
        if name not in self._workers:
            known = ", ".join(self._workers) or "none"
            raise ConfigError(f"there is no worker {name!r}", remedy=f"workers: {known}")
        worker = self._workers.pop(name)
        for session in [s for s, home in self._home.items() if home is worker]:
            del self._home[session]
        await _close(worker.upstream)

    def state(self) -> dict[str, dict[str, float]]:
        """Per worker: calls in flight, sessions, faults in a row, seconds that it still rests."""
        now = time.monotonic()
        return {
            worker.name: {
                "inflight": worker.inflight,
                "sessions": worker.sessions,
                "faults": worker.faults,
                "resting": max(0.0, worker.resting_until - now),
            }
            for worker in self._workers.values()
        }

    @property
    def version(self) -> int:
        """The oldest version that a worker samples from; each sample carries its own."""
        return min((w.upstream.version for w in self._workers.values()), default=0)

    @property
    def context_window(self) -> int:
        """The shortest window of the workers."""
        if not self._workers:
            raise ConfigError("the pool has no workers")
        return min(w.upstream.context_window for w in self._workers.values())

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """Sample on the session's worker, or on another while that one is not well."""
        call = _Call(prompt.session, time.monotonic() + self.patience)
        while True:
            worker = await self._worker(call)
            worker.inflight += 1
            begun = False
            try:
                async for piece in worker.upstream.sample(prompt, params):
                    begun = True
                    yield piece
            except WorkerFault as fault:
                self._blame(worker, fault, call, final=begun)
            else:
                worker.well()
                return
            finally:
                worker.inflight -= 1

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """Score on the session's worker, or on another while that one is not well."""
        call = _Call(prompt.session, time.monotonic() + self.patience)
        while True:
            worker = await self._worker(call)
            worker.inflight += 1
            try:
                return await worker.upstream.score(prompt)
            except WorkerFault as fault:
                self._blame(worker, fault, call)
            finally:
                worker.inflight -= 1

    def _blame(
        self, worker: _Worker, fault: WorkerFault, call: _Call, *, final: bool = False
    ) -> None:
        """Let the worker rest, or remember whom the call upset; raises when it has had enough."""
        call.fault = fault
        if fault.unwell:
            worker.rest(fault.retry_after)
        else:
            call.upset.append(worker)
        if final or len(call.upset) == TRIES:
            raise fault
        self.retried += 1

    async def _worker(self, call: _Call) -> _Worker:
        """The session's worker, or the least busy one; waits while all of them rest."""
        while True:
            now = time.monotonic()
            awake = [w for w in self._workers.values() if w.resting_until <= now]
            if awake:
                return self._choose(
                    call.session, [w for w in awake if w not in call.upset] or awake
                )
            wake = min((w.resting_until for w in self._workers.values()), default=now + 0.1)
            if now >= call.give_up or (wake > call.give_up and self._workers):
                raise call.fault or ModelError(
                    f"none of {len(self._workers)} workers took the call within "
                    f"{self.patience:g} s",
                    remedy="look at the workers' own logs",
                )
            await asyncio.sleep(min(wake - now, 0.5))  # a health check may wake one earlier

    def _choose(self, session: str, awake: list[_Worker]) -> _Worker:
        home = self._home.get(session) if session else None
        if home is not None and home in awake:
            self._home.move_to_end(session)
            return home
        chosen = min(awake, key=lambda worker: (worker.inflight, worker.sessions))
        if session:
            self._settle(session, home, chosen)
        return chosen

    def _settle(self, session: str, old: _Worker | None, new: _Worker) -> None:
        """Remember where the session lives now."""
        if old is not None:
            old.sessions -= 1
        new.sessions += 1
        self._home[session] = new
        self._home.move_to_end(session)
        if len(self._home) > REMEMBERED:
            _, forgotten = self._home.popitem(last=False)
            forgotten.sessions -= 1

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self.check_every)
            await asyncio.gather(*(self._ask(w) for w in tuple(self._workers.values())))

    async def _ask(self, worker: _Worker) -> None:
        """Wake a resting worker that is well again; let one rest that is not well."""
        healthy = getattr(worker.upstream, "healthy", None)
        if healthy is None:
            return
        if await healthy():
            worker.well()
        else:
            worker.rest(None)


async def _close(upstream: Upstream) -> None:
    close = getattr(upstream, "close", None)
    if close is not None:
        await close()
