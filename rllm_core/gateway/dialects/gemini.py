"""Gemini: generateContent, streamGenerateContent, countTokens. The path names model and method."""

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.gateway.dialects.gemini_request import parse_contents
from rllm_core.gateway.dialects.outgoing import EVENT_STREAM, arguments_object, event
from rllm_core.types import Usage

__all__ = ["Gemini"]

_PATH = re.compile(
    r"(?:(?:tuned)?[mM]odels|publishers/\w+/models)/(?P<model>.+)"
    r":(?P<method>generateContent|streamGenerateContent|countTokens)"
)

_FINISHES = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
}


@frozen
class Gemini:
    """The Gemini dialect at one path.

    A stream is server-sent events where `events` is set, else a JSON array.
    """

    model: str = ""
    method: str = "generateContent"
    events: bool = True

    @classmethod
    def of(cls, path: str, query: Mapping[str, str]) -> "Gemini | None":
        """The dialect for `models/ROLE:METHOD`; None for other paths."""
        found = _PATH.fullmatch(path)
        return found and cls(found["model"], found["method"], query.get("alt") == "sse")

    @property
    def keepalive(self) -> bytes:
        """An empty event, since Gemini's clients stumble over comments; white space in an array."""
        return b"data: {}\n\n" if self.events else b"\n"

    @property
    def media_type(self) -> str:
        """The content type of a stream."""
        return EVENT_STREAM if self.events else "application/json"

    def parse(self, body: Any) -> Call:
        """See `gemini_request`."""
        call = parse_contents(body, counting=self.method == "countTokens")
        call.model = self.model
        call.stream = self.method == "streamGenerateContent"
        return call

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A GenerateContentResponse."""
        message = answer.message
        parts = [_part(d) for d in _shown(call, message)]
        return _response(call, answer, parts + _calls(message))

    def stream(self, call: Call, call_id: str, model: str) -> "_ContentStream":
        """A stream of GenerateContentResponses."""
        return _ContentStream(self, call, call_id, model)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """Google's error object."""
        message = refusal.message
        if refusal.length is not None:
            message = (
                f"The input token count ({refusal.length}) exceeds the maximum number of tokens "
                f"allowed ({refusal.window})."
            )
        status = _STATUSES.get(refusal.status, "INTERNAL")
        return {"error": {"code": refusal.status, "message": message, "status": status}}

    def counted(self, tokens: int) -> dict[str, Any]:
        """The body of a token count."""
        return {"totalTokens": tokens}


def _shown(call: Call, message: Mapping[str, Any]) -> list[Delta]:
    reasoning, content = message.get("reasoning_content"), message.get("content")
    shown = [Delta("reasoning", reasoning)] if reasoning and call.show_reasoning else []
    return [*shown, Delta("content", content)] if content else shown


def _part(delta: Delta) -> dict[str, Any]:
    part: dict[str, Any] = {"text": delta.text}
    return {**part, "thought": True} if delta.kind == "reasoning" else part


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls; an empty text where the reply has nothing else to show."""
    calls = [
        {
            "functionCall": {
                "id": call["id"],
                "name": call["function"]["name"],
                "args": arguments_object(call["function"]["arguments"]),
            }
        }
        for call in message.get("tool_calls") or ()
    ]
    return calls if calls or message.get("content") else [{"text": ""}]


def _content(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"role": "model", "parts": parts}, "index": 0}


def _response(call: Call, answer: Answer, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The last or only response, with all that is known at the end."""
    candidate = _content(parts)
    candidate["finishReason"] = _FINISHES.get(answer.finish, "STOP")
    if call.want_logprobs and answer.logprobs is not None:
        pairs = zip(answer.texts, answer.logprobs, strict=True)
        chosen = [{"token": text, "logProbability": value} for text, value in pairs]
        candidate["logprobsResult"] = {"chosenCandidates": chosen}
    prompt, completion = answer.usage.prompt_tokens, answer.usage.completion_tokens
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": completion}
    return {
        "candidates": [candidate],
        "usageMetadata": {**usage, "totalTokenCount": prompt + completion},
        "modelVersion": answer.model,
        "responseId": answer.id,
    }


class _ContentStream:
    """Text and thoughts go out as they come; tool calls at the end, as one part each."""

    def __init__(self, dialect: Gemini, call: Call, call_id: str, model: str) -> None:
        self._dialect = dialect
        self._call = call
        self._head = {"modelVersion": model, "responseId": call_id}
        self._written = False

    def start(self, usage: Usage | None) -> bytes:  # noqa: ARG002 - told at the end
        return b""

    def delta(self, delta: Delta) -> bytes:
        hidden = delta.kind == "reasoning" and not self._call.show_reasoning
        if delta.kind == "tool" or hidden:
            return b""
        return self._chunk({"candidates": [_content([_part(delta)])], **self._head})

    def finish(self, answer: Answer) -> bytes:
        parts = _calls(answer.message)
        return self._chunk(_response(self._call, answer, parts)) + self._end()

    def error(self, refusal: Refusal) -> bytes:
        return self._chunk(self._dialect.error(refusal)) + self._end()

    def _chunk(self, body: Mapping[str, Any]) -> bytes:
        if self._dialect.events:
            return event(body)
        opening = b",\n" if self._written else b"["
        self._written = True
        return opening + json.dumps(body).encode()

    def _end(self) -> bytes:
        return b"" if self._dialect.events else b"]"
