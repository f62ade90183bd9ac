"""What dialects share on the way out: events, replies in pieces, arguments as objects."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rllm_core.gateway.calls import Delta, Refusal
from rllm_core.types import Logprobs

__all__ = [
    "EVENT_STREAM",
    "arguments_object",
    "deltas_of",
    "event",
    "openai_error",
    "token_logprobs",
]

EVENT_STREAM = "text/event-stream"


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json.dumps(data).encode() + b"\n\n"


def deltas_of(message: Mapping[str, Any]) -> list[Delta]:
    """A whole reply as the pieces that a stream would have brought."""
    deltas = []
    if message.get("reasoning_content"):
        deltas.append(Delta("reasoning", message["reasoning_content"]))
    if message.get("content"):
        deltas.append(Delta("content", message["content"]))
    for i, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        deltas.append(Delta("tool", function["arguments"], i, call["id"], function["name"]))
    return deltas


def arguments_object(text: str | None) -> dict[str, Any]:
    """A tool call's arguments, for a dialect in which they are an object.

    Arguments that are no JSON object stand in one, under `arguments`: the agent's own check of
    its tool then tells the model what was wrong.
    """
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = text
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"arguments": value}


_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """OpenAI's error object, the same in all of its formats."""
    return {
        "error": {
            "message": refusal.message,
            "type": _OPENAI_TYPES.get(refusal.status, "server_error"),
            "param": None,
            "code": refusal.code,
        }
    }


def token_logprobs(texts: Sequence[str], logprobs: Logprobs) -> list[dict[str, Any]]:
    """The sampled tokens and their logprobs, as OpenAI lists them."""
    return [
        {
            "token": text,
            "logprob": logprob,
            "bytes": list(text.encode("utf-8", "replace")),
            "top_logprobs": [],
        }
        for text, logprob in zip(texts, logprobs, strict=True)
    ]
