"""The worker process, seen from the parent's event loop.

A call is sent at once and answered in order; its future may be awaited whenever it is
wanted, and has a deadline. When the worker dies, everything that waits for it is told how
(exit status or signal, and the last lines that it printed).
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from attrs import define, field

from rllm_backend_local.environment import worker_environment
from rllm_backend_local.frames import Piece, Refusal, pack, read
from rllm_core import errors
from rllm_core.errors import BackendError, InfraError, RllmError

__all__ = ["Worker"]

_log = logging.getLogger("rllm.backend.local")
_CLOSE_S = 5.0
_TAIL_LINES = 15

Waiter = Callable[[Any], None]


@define(eq=False)
class Worker:
    """One worker process. `call_timeout` is in seconds."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    call_timeout: float
    calls: "itertools.count[int]" = field(factory=lambda: itertools.count(1))
    pending: "dict[int, asyncio.Future[Any]]" = field(factory=dict)
    streams: "dict[int, asyncio.Queue[Any]]" = field(factory=dict)
    tail: deque[str] = field(factory=lambda: deque[str](maxlen=_TAIL_LINES))
    tasks: "list[asyncio.Task[None]]" = field(factory=list)
    death: str | None = None
    closing: bool = False

    @classmethod
    async def start(cls, *, threads: int, start_timeout: float, call_timeout: float) -> "Worker":
        """Start a worker; `InfraError` where it does not come up in time."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "rllm_backend_local.worker", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                env=worker_environment(threads, os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = cls(process, reader, writer, call_timeout)
        ready = worker._expect(0, start_timeout, "start")
        worker.tasks += [
            asyncio.create_task(worker._listen()),
            asyncio.create_task(worker._drain()),
        ]
        try:
            facts = await ready
        except BackendError as error:
            await worker.close()
            raise InfraError(error.message, remedy=error.remedy) from error
        except BaseException:
            await worker.close()
            raise
        _log.info("worker %d: torch %s, %d threads", process.pid, facts["torch"], facts["threads"])
        return worker

    def call(self, method: str, *arguments: Any) -> "asyncio.Future[Any]":
        """Send a call now; the future holds its answer or raises its error."""
        number = next(self.calls)
        answer = self._expect(number, self.call_timeout, method)
        self._send(number, method, arguments)
        return answer

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Piece, None]:
        """Send a call that is answered in pieces; leaving the loop early aborts it."""
        number = next(self.calls)
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        self.streams[number] = pieces
        finished = False
        try:
            self._send(number, method, arguments)
            if self.death is not None:
                raise InfraError(self.death)
            while not finished:
                piece = await self._next(pieces)
                finished = piece.finish is not None
                yield piece
        finally:
            del self.streams[number]
            if not finished:
                self._send(0, "abort", (number,))

    async def close(self) -> None:
        """End the process, by force where it does not go by itself."""
        self.closing = True
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), _CLOSE_S)
        except TimeoutError:
            self.process.kill()
            await asyncio.wait_for(self.process.wait(), _CLOSE_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self.tasks), _CLOSE_S)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await asyncio.wait_for(self.writer.wait_closed(), _CLOSE_S)

    async def _next(self, pieces: "asyncio.Queue[Any]") -> Piece:
        try:
            item = await asyncio.wait_for(pieces.get(), self.call_timeout)
        except TimeoutError:
            raise InfraError(
                f"the local sampler made no token in {self.call_timeout:g} s"
            ) from None
        if isinstance(item, RllmError):
            raise item
        return item  # type: ignore[no-any-return]

    def _expect(self, number: int, timeout: float, method: str) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if self.death is not None:
            answer.set_exception(BackendError(self.death))
            return answer
        self.pending[number] = answer
        late = BackendError(
            f"the local backend's worker did not answer {method!r} within {timeout:g} s",
            remedy="Give it longer (backend.call_timeout, backend.start_timeout) or less to do.",
        )
        alarm = loop.call_later(timeout, _fail, answer, late)
        answer.add_done_callback(lambda _: self._settled(number, alarm))
        return answer

    def _settled(self, number: int, alarm: asyncio.TimerHandle) -> None:
        alarm.cancel()
        self.pending.pop(number, None)

    def _send(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        if not self.writer.is_closing():
            self.writer.write(pack((number, method, arguments)))

    async def _listen(self) -> None:
        """Hand out what the worker sends, until it is gone."""
        try:
            while True:
                self._dispatch(*await read(self.reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            status = await self.process.wait()
        self.writer.close()
        await asyncio.sleep(0)  # let the last printed lines arrive
        self._die(status)

    def _dispatch(self, number: int, kind: str, value: Any) -> None:
        if kind == "pieces":
            for piece in value:
                if piece.call in self.streams:
                    self.streams[piece.call].put_nowait(piece)
        elif kind == "log":
            _log.info("%s", value)
        elif kind == "error":
            self._refuse(number, value)
        elif (answer := self.pending.get(number)) is not None and not answer.done():
            answer.set_result(value)

    def _refuse(self, number: int, refusal: Refusal) -> None:
        error = getattr(errors, refusal.category)(refusal.message, remedy=refusal.remedy)
        error.add_note(refusal.detail)
        if number in self.streams:
            self.streams[number].put_nowait(error)
        elif number in self.pending:
            _fail(self.pending[number], error)

    def _die(self, status: int) -> None:
        self.death = self._obituary(status)
        if not self.closing:
            _log.error("%s", self.death)
        for answer in list(self.pending.values()):
            _fail(answer, BackendError(self.death))
        for pieces in self.streams.values():
            pieces.put_nowait(InfraError(self.death))

    def _obituary(self, status: int) -> str:
        if self.closing:
            return "the local backend is closed"
        how = f"ended with exit status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            if -status == signal.SIGKILL:
                how += " (the system does that when memory runs out)"
        said = "\n".join(self.tail)
        return f"the local backend's worker {how}" + (f"; its last lines:\n{said}" if said else "")

    async def _drain(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode(errors="replace").rstrip()
            self.tail.append(text)
            _log.debug("worker: %s", text)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
