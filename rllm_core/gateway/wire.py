"""Answering a call from an OpenAI-compatible server.

The request goes on in Chat Completions form, with the server's model name and key and the
session's sampling. Only transport is retried (refused and reset connections, 429, 5xx), and only
while nothing of the reply has reached the agent. Token ids are recorded where the server gives
them; a call trains only if they extend the recorded branch, else it says why not.
"""

import asyncio
from functools import partial
from typing import Any

import aiohttp

from rllm_core.errors import ModelError
from rllm_core.gateway.calls import Answer, Call, Refusal
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.reply import Reply
from rllm_core.gateway.session import Session
from rllm_core.gateway.taping import RETRIED, taped
from rllm_core.gateway.tree import Node
from rllm_core.gateway.wire_record import record_wire
from rllm_core.gateway.wire_reply import WireReply, read_stream, read_whole
from rllm_core.upstream import WireUpstream
from rllm_core.upstream.cassette import Tape

__all__ = ["Wire"]

_OVERFLOWS = (
    "context_length_exceeded",
    "maximum context length",
    "context window",
    "context length",
    "prompt is too long",
    "input is too long",
    "longer than the model",
    "too many tokens",
    "exceeds the limit of",
)
"""How servers say that a prompt is too long, in lower case."""


class _Transport(Exception):  # noqa: N818 - an attempt that may be repeated
    """An attempt failed in a way that another may not; `after` is what the server asked."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Wire:
    """The client side of the gateway: one connection pool for all servers."""

    def __init__(self, tape: Tape | None = None) -> None:
        self._tape = tape
        self._client: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the pool."""
        if self._client is not None:
            await self._client.close()

    def _pool(self) -> aiohttp.ClientSession:
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._client = aiohttp.ClientSession(connector=connector)
        return self._client

    async def answer(self, exchange: Exchange, reply: Reply) -> tuple[Answer, Node]:
        """Get one reply from the server, record it, and return it; deltas go to `reply` at once.

        ModelError names the URL, the status and the body's beginning when the server fails for
        good; Refusal (400) passes on its complaint about the request.
        """
        session, call = exchange.session, exchange.call
        if call.prompt is not None:
            raise Refusal(
                400,
                f"the role {exchange.route.role!r} is a chat server: plain prompts need a token "
                "upstream",
            )
        role = exchange.route.role
        place = session.tree.place(exchange.agent, role, call.tools, call.messages)
        slot = session.begin(place)
        try:
            async with exchange.route.passage():
                got = await self._got(exchange, reply)
        except BaseException:
            session.tree.cancel(place, slot)
            raise
        session.sampled(got.usage.completion_tokens)
        return record_wire(exchange, place, slot, got)

    async def _got(self, exchange: Exchange, reply: Reply) -> WireReply:
        """The server's reply, or the tape's."""
        upstream = exchange.route.upstream
        if not isinstance(upstream, WireUpstream):
            raise ModelError(f"the role {exchange.route.role!r} was routed away in mid-call")
        body = _request_body(exchange.session, upstream, exchange.call)
        ask = partial(self._attempts, exchange, upstream, body, reply)
        return await (ask() if self._tape is None else taped(self._tape, exchange, body, ask))

    async def _attempts(
        self, exchange: Exchange, upstream: WireUpstream, body: dict[str, Any], reply: Reply
    ) -> WireReply:
        session = exchange.session
        for attempt in range(upstream.retries + 1):
            try:
                return await self._attempt(exchange, upstream, body, reply)
            except _Transport as fault:
                if attempt == upstream.retries or reply.sent:
                    tries = f" ({attempt + 1} attempts)" if attempt else ""
                    raise ModelError(f"{fault}{tries}") from fault
                session.counts[RETRIED] += 1
                after = fault.after if fault.after is not None else min(8.0, 0.25 * 2**attempt)
                await asyncio.sleep(after)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(
        self, exchange: Exchange, upstream: WireUpstream, body: dict[str, Any], reply: Reply
    ) -> WireReply:
        url = f"{upstream.base_url.rstrip('/')}/chat/completions"
        headers = dict(upstream.headers)
        if upstream.api_key:
            headers["Authorization"] = f"Bearer {upstream.api_key}"
        try:
            async with (
                asyncio.timeout(upstream.timeout),
                self._pool().post(url, json=body, headers=headers, timeout=_NO_TIMEOUT) as got,
            ):
                if got.status != 200:
                    raise _fault(
                        exchange.session, url, got.status, await got.text(errors="replace"), got
                    )
                if body["stream"]:
                    return await read_stream(url, got, reply)
                return read_whole(url, await got.read())
        except TimeoutError:
            raise ModelError(f"{url} gave no answer within {upstream.timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise _Transport(f"{url} cannot be reached: {_reason(error)}") from error


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)


def _request_body(session: Session, upstream: WireUpstream, call: Call) -> dict[str, Any]:
    """The agent's request as the server is asked it."""
    body = {**call.body, "model": upstream.model}
    enforced = dict(session.sampling)
    bounds = [call.max_tokens, enforced.pop("max_tokens", None), session.tokens_left()]
    wanted = min((b for b in bounds if b is not None), default=None)
    if wanted is not None:
        named = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        if call.max_tokens is not None and wanted < call.max_tokens:
            session.counts["calls whose max_tokens was capped"] += 1
        body[named] = wanted
    body.update(enforced)
    if upstream.token_ids:
        body.update(logprobs=True, return_token_ids=True)
        body.pop("top_logprobs", None)
    elif not call.want_ids:
        body.pop("return_token_ids", None)
    body["stream"] = _streams(upstream, call)
    body.pop("stream_options", None)
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return body


def _streams(upstream: WireUpstream, call: Call) -> bool:
    """Whether the server is asked for a stream: not where ids are wanted.

    SGLang refuses ids in streams, and older vLLMs lose some there; the whole reply is streamed
    to the agent when it has come.
    """
    return call.stream and not upstream.token_ids


def _fault(
    session: Session, url: str, status: int, text: str, got: aiohttp.ClientResponse
) -> Exception:
    """What a status other than 200 means: try again, give up, or the agent's own mistake."""
    sentence = f"{url} answered {status}: {text[:300]}"
    if status == 429 or status >= 500:
        return _Transport(sentence, _seconds(got.headers.get("Retry-After")))
    if status in (400, 413, 422):
        lower = text.lower()
        if any(words in lower for words in _OVERFLOWS):
            return session.overflow(sentence)
        session.complain(sentence)
        return Refusal(400, sentence)
    return ModelError(sentence)


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds; its date form and nonsense count as absent."""
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None


def _reason(error: aiohttp.ClientError) -> str:
    return str(getattr(error, "os_error", None) or error) or type(error).__name__
