"""One answer on its way to the agent: whole or streamed, with signs of life while it samples."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from rllm_core.gateway.calls import Answer, Delta, Refusal
from rllm_core.gateway.dialects import Dialect
from rllm_core.gateway.dialects.outgoing import deltas_of
from rllm_core.gateway.exchange import Exchange

__all__ = ["AgentGone", "Reply"]


class AgentGone(ConnectionError):  # noqa: N818 - what happened, not a mistake
    """The agent hung up before its answer had arrived."""


class Reply:
    """The HTTP answer to one call.

    A stream's headers go out with its first byte, so that an error before that still has its
    proper status. `sent` says whether any of the reply itself has gone out.
    """

    def __init__(
        self, request: web.Request, dialect: Dialect, exchange: Exchange, keepalive: float
    ) -> None:
        self._request = request
        self._dialect = dialect
        self._call = exchange.call
        self._form = dialect.stream(exchange.call, exchange.id, exchange.model)
        self._keepalive = keepalive
        self._stream: web.StreamResponse | None = None
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self.sent = False

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Around the sampling: writes a sign of life to a stream every so often."""
        if not self._call.stream:
            yield
            return
        self._schedule()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._beating is not None:
                self._beating.cancel()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._keepalive, self._start_beat)

    def _start_beat(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        with suppress(AgentGone):  # the call itself will find that its agent is gone
            await self._write(self._dialect.keepalive)
            self._schedule()

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            try:
                if self._stream is None:
                    kind = self._dialect.media_type
                    headers = {"Content-Type": kind, "Cache-Control": "no-cache"}
                    stream = web.StreamResponse(headers=headers)
                    await stream.prepare(self._request)
                    self._stream = stream
                await self._stream.write(data)
            except ConnectionError as error:
                raise AgentGone(str(error)) from error

    async def delta(self, delta: Delta) -> None:
        """Send a piece of the reply at once."""
        data = b"" if self.sent else self._form.start(None)
        self.sent = True
        data += self._form.delta(delta)
        if data:
            await self._write(data)

    async def finish(self, answer: Answer) -> web.StreamResponse:
        """Send the answer, or what of it has not been streamed; AgentGone if it is lost."""
        if not self._call.stream:
            body = json.dumps(self._dialect.reply(self._call, answer)).encode()
            return await self._whole(body, 200)
        data = b""
        if not self.sent:
            data = self._form.start(answer.usage)
            data += b"".join(map(self._form.delta, deltas_of(answer.message)))
        await self._write(data + self._form.finish(answer))
        return await self._end()

    async def refuse(self, refusal: Refusal) -> web.StreamResponse:
        """Send an error: as a status where nothing went out yet, else inside the stream."""
        if self._stream is None:
            body = json.dumps(self._dialect.error(refusal)).encode()
            return await self._whole(body, refusal.status, final=refusal.final)
        await self._write(self._form.error(refusal))
        return await self._end()

    async def _whole(self, body: bytes, status: int, *, final: bool = False) -> web.StreamResponse:
        headers = {"x-should-retry": "false"} if final else None
        response = web.Response(
            body=body, status=status, headers=headers, content_type="application/json"
        )
        return await self._send(response)

    async def _send(
        self, response: web.StreamResponse, *, prepared: bool = False
    ) -> web.StreamResponse:
        try:
            if not prepared:
                await response.prepare(self._request)
            await response.write_eof()
        except ConnectionError as error:
            raise AgentGone(str(error)) from error
        return response

    async def _end(self) -> web.StreamResponse:
        if self._stream is None:
            raise RuntimeError("a stream ends after it has begun")
        return await self._send(self._stream, prepared=True)
