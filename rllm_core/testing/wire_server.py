"""A local OpenAI-compatible server that answers Chat Completions from a script, faults included.

It needs aiohttp only. Token ids and logprobs are made up (a byte a token) and given to callers
who ask, as vLLM gives them.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web
from attrs import Factory, frozen

__all__ = ["WireReply", "WireServer"]


@frozen
class WireReply:
    """One scripted answer.

    `tool_calls` are (name, arguments as JSON text). `status` other than 200 answers an error
    with `body` or a made-up message; `retry_after` is its header. `hang` waits so many seconds
    first. `cut` drops the connection after so many stream chunks (0: before any answer).
    `malformed` answers 200 with `body`, whatever it is. `usage_error` is added to the count of
    completion tokens; `drop_ids` leaves out so many token ids; `prompt_shift` is added to every
    prompt id, as a server that tokenises differently would.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[tuple[str, str]] = ()
    finish: str = ""
    status: int = 200
    body: str = ""
    retry_after: str | None = None
    hang: float = 0.0
    cut: int | None = None
    malformed: bool = False
    usage_error: int = 0
    drop_ids: int = 0
    prompt_shift: int = 0


Replies = Sequence[str | WireReply] | Callable[[Mapping[str, Any]], str | WireReply]


class WireServer:
    """Use as `async with WireServer(["hi"]) as server:`; `server.base_url` ends in /v1.

    Replies are used in order, the last one for ever; or come from a function of the body.
    `ids` False never gives token ids, asked or not. `requests` keeps (headers, body) in order.
    """

    def __init__(self, replies: Replies, *, ids: bool = True, port: int = 0) -> None:
        self.requests: list[tuple[Mapping[str, str], dict[str, Any]]] = []
        self._replies = replies
        self._ids = ids
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def _next(self, body: dict[str, Any]) -> WireReply:
        if callable(self._replies):
            found = self._replies(body)
        else:
            found = self._replies[min(len(self.requests), len(self._replies)) - 1]
        return found if isinstance(found, WireReply) else WireReply(found)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((dict(request.headers), body))
        reply = self._next(body)
        await asyncio.sleep(reply.hang)
        if reply.cut == 0:
            return _cut(request)
        if reply.status != 200:
            headers = {} if reply.retry_after is None else {"Retry-After": reply.retry_after}
            text = reply.body or json.dumps({"error": {"message": "scripted", "code": None}})
            return web.Response(text=text, status=reply.status, headers=headers)
        if reply.malformed:
            return web.Response(text=reply.body, content_type="application/json")
        facts = _Facts.of(reply, body, len(self.requests), with_ids=self._ids)
        if body.get("stream"):
            return await _stream(request, reply, facts, body)
        return web.json_response(facts.whole())


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@frozen
class _Facts:
    """A reply worked out: its message, its choice's extras, its usage."""

    head: Mapping[str, Any]
    message: Mapping[str, Any]
    finish: str
    usage: Mapping[str, int]
    top: Mapping[str, Any] = Factory(dict)
    extras: Mapping[str, Any] = Factory(dict)

    @classmethod
    def of(
        cls, reply: WireReply, body: Mapping[str, Any], number: int, *, with_ids: bool
    ) -> "_Facts":
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        calls = [
            {
                "id": f"call_{number}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(reply.tool_calls)
        ]
        if calls:
            message["tool_calls"] = calls
        out = [*_bytes([message]), 256]
        prompt = [i + reply.prompt_shift for i in _prompt_ids(body["messages"])]
        count = len(out) + reply.usage_error
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "total_tokens": len(prompt) + count,
        }
        top: dict[str, Any] = {}
        extras: dict[str, Any] = {}
        if body.get("return_token_ids") and with_ids:
            top["prompt_token_ids"] = prompt
            extras["token_ids"] = out[: len(out) - reply.drop_ids]
        if body.get("logprobs"):
            entries = [{"token": f"token_id:{i}", "logprob": -0.5, "top_logprobs": []} for i in out]
            extras["logprobs"] = {"content": entries}
        head = {"id": f"chatcmpl-{number}", "created": 0, "model": body.get("model", "m")}
        finish = reply.finish or ("tool_calls" if calls else "stop")
        return cls(head, message, finish, usage, top, extras)

    def whole(self) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": self.message,
            "finish_reason": self.finish,
            **self.extras,
        }
        shape = {"object": "chat.completion", "choices": [choice], "usage": self.usage}
        return {**self.head, **shape, **self.top}

    def chunks(self, *, usage: bool) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if self.message.get("reasoning_content"):
            deltas.append({"reasoning_content": self.message["reasoning_content"]})
        text = self.message["content"] or ""
        deltas += [{"content": text[i : i + 5]} for i in range(0, len(text), 5)]
        for i, call in enumerate(self.message.get("tool_calls") or ()):
            function, whole = call["function"], call["function"]["arguments"]
            half = len(whole) // 2
            first = {**call, "index": i, "function": {**function, "arguments": whole[:half]}}
            rest = {"index": i, "function": {"arguments": whole[half:]}}
            deltas += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
        chunks = [self._chunk({"delta": d, "finish_reason": None}) for d in deltas]
        chunks.append(self._chunk({"delta": {}, "finish_reason": self.finish, **self.extras}))
        chunks[0] |= self.top
        if usage:
            chunks.append(
                {**self.head, "object": _CHUNK, "choices": [], "usage": self.usage},
            )
        return chunks

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.head, "object": _CHUNK, "choices": [{"index": 0, **choice}]}


_CHUNK = "chat.completion.chunk"


def _bytes(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """A message's parts as bytes: what this "model" tokenises."""
    texts = []
    for message in messages:
        content = message.get("content") or ""
        texts.append(content if isinstance(content, str) else json.dumps(content))
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        texts += [function["name"] + function["arguments"] for function in functions]
    return list("".join(texts).encode())


def _prompt_ids(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """256 ends every turn, so that prompts extend each other as an append-only template's do."""
    ids: list[int] = []
    for message in messages:
        ids += [*_bytes([message]), 256]
    return ids


async def _stream(
    request: web.Request, reply: WireReply, facts: _Facts, body: Mapping[str, Any]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    for n, chunk in enumerate(facts.chunks(usage=usage)):
        if reply.cut is not None and n >= reply.cut:
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(0)
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response
