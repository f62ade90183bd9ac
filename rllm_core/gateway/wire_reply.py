"""Reading a server's Chat Completions reply, whole or streamed, without trusting it."""

import json
from array import array
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from attrs import Factory, define

from rllm_core.errors import ModelError
from rllm_core.gateway.calls import Delta
from rllm_core.gateway.reply import Reply
from rllm_core.types import Logprobs, TokenIds, Usage

__all__ = ["WireReply", "read_stream", "read_whole"]


@define
class WireReply:
    """A server's reply, gathered. Ids and logprobs are None where it gave none."""

    message: dict[str, Any] = Factory(lambda: {"role": "assistant", "content": ""})
    finish: str = "stop"
    usage: Usage = Factory(Usage)
    counted: bool = False
    prompt_ids: TokenIds | None = None
    output_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    texts: tuple[str, ...] = ()

    def take_facts(self, body: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        """Take ids, logprobs, usage and finish from a body or chunk, where it has them."""
        usage = body.get("usage")
        if usage:
            self.usage = Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
            self.counted = True
        prompt = body.get("prompt_token_ids") or choice.get("prompt_token_ids")
        if prompt and self.prompt_ids is None:
            self.prompt_ids = array("i", prompt)
        if choice.get("token_ids"):
            self.output_ids = (self.output_ids or array("i")) + array("i", choice["token_ids"])
        entries = (choice.get("logprobs") or {}).get("content")
        if entries:
            values = array("f", [entry["logprob"] for entry in entries])
            self.logprobs = (self.logprobs or array("f")) + values
            self.texts += tuple(str(entry.get("token", "")) for entry in entries)
        self.finish = choice.get("finish_reason") or self.finish

    def take_delta(self, delta: Mapping[str, Any]) -> list[Delta]:
        """Add a chunk's delta to the message; returns it as deltas of ours."""
        deltas = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            deltas.append(Delta("reasoning", reasoning))
            self.message["reasoning_content"] = (
                self.message.get("reasoning_content", "") + reasoning
            )
        if delta.get("content"):
            deltas.append(Delta("content", delta["content"]))
            self.message["content"] += delta["content"]
        deltas += [self._take_call(part) for part in delta.get("tool_calls") or ()]
        return deltas

    def _take_call(self, part: Mapping[str, Any]) -> Delta:
        calls = self.message.setdefault("tool_calls", [])
        index = int(part.get("index") or 0)
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        if index < len(calls):
            calls[index]["function"]["arguments"] += arguments
            return Delta("tool", arguments, index)
        index, name = len(calls), function.get("name") or ""
        call_id = part.get("id") or f"call_{index}"
        made = {"name": name, "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": made})
        return Delta("tool", arguments, index, call_id, name)


def read_whole(url: str, raw: bytes) -> WireReply:
    """A whole reply; ModelError with its beginning where it is not what it should be."""
    try:
        body = json.loads(raw)
        choice = body["choices"][0]
        message = choice["message"]
        reply = WireReply()
        reply.take_facts(body, choice)
        reply.message["content"] = message.get("content")
        calls = message.get("tool_calls")
        if calls:
            reply.message["tool_calls"] = calls
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if reasoning:
            reply.message["reasoning_content"] = reasoning
    except _MALFORMED as error:
        raise _malformed(url, raw) from error
    return reply


async def read_stream(url: str, response: aiohttp.ClientResponse, out: Reply) -> WireReply:
    """A streamed reply, handed on piece by piece; ModelError where it breaks off."""
    reply, finished = WireReply(), False
    async for raw in _events(response):
        try:
            body = json.loads(raw)
            if body.get("error"):
                raise ModelError(f"{url} answered with an error in its stream: {raw[:300]!r}")
            choice = (body.get("choices") or [{}])[0]
            reply.take_facts(body, choice)
            deltas = reply.take_delta(choice.get("delta") or {})
        except _MALFORMED as error:
            raise _malformed(url, raw) from error
        finished = finished or bool(choice.get("finish_reason"))
        for delta in deltas:
            await out.delta(delta)
    if not finished:
        raise ModelError(f"{url} cut its stream before the reply's end")
    if reply.message.get("tool_calls"):
        reply.message["content"] = reply.message["content"] or None
    return reply


_MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)


def _malformed(url: str, raw: bytes) -> ModelError:
    text = raw[:300].decode("utf-8", "replace")
    return ModelError(f"{url} answered 200 with a body that is no chat completion: {text}")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each server-sent event, up to `[DONE]`; lines of any length."""
    pending = b""
    async for data in response.content.iter_any():
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                event = line[5:].strip()
                if event == b"[DONE]":
                    return
                yield event
    if pending.startswith(b"data:") and pending[5:].strip() != b"[DONE]":
        yield pending[5:].strip()
