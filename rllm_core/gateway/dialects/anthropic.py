"""Anthropic Messages: blocks of text, thinking and tool use; named events in its streams."""

import json
from typing import Any

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.gateway.dialects.anthropic_request import parse_messages
from rllm_core.gateway.dialects.outgoing import EVENT_STREAM, arguments_object, event
from rllm_core.types import Usage

__all__ = ["AnthropicMessages"]

_SIGNATURE = "cmxsbQ=="
"""What vouches for a thinking block; clients hand it back unread."""

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    """The Anthropic Messages dialect."""

    keepalive = event({"type": "ping"}, "ping")
    media_type = EVENT_STREAM

    def parse(self, body: Any) -> Call:
        """See `anthropic_request`."""
        return parse_messages(body)

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A `message` object."""
        return {
            **_message(answer.id, answer.model, answer.usage),
            "content": _blocks(call, answer),
            **_ending(answer),
        }

    def stream(self, call: Call, call_id: str, model: str) -> "_MessageStream":
        """A stream of `message_start`, `content_block_…`, `message_delta`, `message_stop`."""
        return _MessageStream(call, call_id, model)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """Anthropic's error object; agents know a prompt that is too long by its words."""
        message = refusal.message
        if refusal.code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
            if refusal.length is not None:
                message = f"prompt is too long: {refusal.length} tokens > {refusal.window} maximum"
        kind = _TYPES.get(refusal.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def counted(self, tokens: int) -> dict[str, Any]:
        """The body of a token count."""
        return {"input_tokens": tokens}


def _message(call_id: str, model: str, usage: Usage) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _ending(answer: Answer) -> dict[str, Any]:
    finish = answer.finish
    if answer.message.get("tool_calls") and finish == "stop":
        finish = "tool_calls"
    reason = "stop_sequence" if answer.stopped_by else _STOPS.get(finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": answer.stopped_by}


def _blocks(call: Call, answer: Answer) -> list[dict[str, Any]]:
    message = answer.message
    blocks: list[dict[str, Any]] = []
    if call.show_reasoning and message.get("reasoning_content"):
        thinking = message["reasoning_content"]
        blocks.append({"type": "thinking", "thinking": thinking, "signature": _SIGNATURE})
    if message.get("content") or not message.get("tool_calls"):
        blocks.append({"type": "text", "text": message.get("content") or ""})
    return blocks + _tool_blocks(answer)


def _tool_blocks(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": arguments_object(call["function"]["arguments"]),
        }
        for call in answer.message.get("tool_calls") or ()
    ]


class _MessageStream:
    """Text and thinking go out as they come; tool calls at the end, when they are known to parse.

    Between, pings keep the line open.
    """

    def __init__(self, call: Call, call_id: str, model: str) -> None:
        self._call = call
        self._id = call_id
        self._model = model
        self._index = -1
        self._open: str | None = None

    def start(self, usage: Usage | None) -> bytes:
        message = _message(self._id, self._model, usage or Usage())
        return event({"type": "message_start", "message": message}, "message_start")

    def delta(self, delta: Delta) -> bytes:
        if delta.kind == "content":
            return self._begin("text") + self._piece(type="text_delta", text=delta.text)
        if delta.kind == "reasoning" and self._call.show_reasoning:
            piece = self._piece
            return self._begin("thinking") + piece(type="thinking_delta", thinking=delta.text)
        return b""

    def finish(self, answer: Answer) -> bytes:
        tools = _tool_blocks(answer)
        silent = not answer.message.get("content") and not tools
        out = self._begin("text") if silent else b""
        out += self._end()
        for block in tools:
            out += self._block({**block, "input": {}})
            out += self._piece(type="input_json_delta", partial_json=json.dumps(block["input"]))
            out += self._end()
        last = {"type": "message_delta", "delta": _ending(answer), "usage": _usage(answer.usage)}
        return out + event(last, "message_delta") + event({"type": "message_stop"}, "message_stop")

    def error(self, refusal: Refusal) -> bytes:
        return event(AnthropicMessages().error(refusal), "error")

    def _begin(self, kind: str) -> bytes:
        """Open a block of this kind, unless it is open."""
        if self._open == kind:
            return b""
        block = {"type": kind, kind: ""}
        if kind == "thinking":
            block["signature"] = ""
        return self._end() + self._block(block)

    def _block(self, block: dict[str, Any]) -> bytes:
        self._open = block["type"]
        self._index += 1
        opened = {"type": "content_block_start", "index": self._index, "content_block": block}
        return event(opened, "content_block_start")

    def _piece(self, **delta: str) -> bytes:
        body = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return event(body, "content_block_delta")

    def _end(self) -> bytes:
        """Close the open block, if any."""
        if self._open is None:
            return b""
        out = b""
        if self._open == "thinking":
            out = self._piece(type="signature_delta", signature=_SIGNATURE)
        self._open = None
        return out + event(
            {"type": "content_block_stop", "index": self._index}, "content_block_stop"
        )
