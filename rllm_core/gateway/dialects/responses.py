"""OpenAI Responses: a reply is a list of items; its stream tells the life of each."""

import time
from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.gateway.dialects.outgoing import EVENT_STREAM, event, openai_error, token_logprobs
from rllm_core.gateway.dialects.responses_items import sealed
from rllm_core.gateway.dialects.responses_request import SEALED, parse_responses
from rllm_core.gateway.dialects.responses_tools import call_item
from rllm_core.types import Usage

__all__ = ["Responses"]

_STOPS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a reply is incomplete, by the finish of the sample."""


class Responses:
    """The Responses dialect."""

    keepalive = b": keep-alive\n\n"
    media_type = EVENT_STREAM

    def parse(self, body: Any) -> Call:
        """See `responses_request`."""
        return parse_responses(body)

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A `response` object."""
        return _response(call, answer, _items(call, answer))

    def stream(self, call: Call, call_id: str, model: str) -> "_ResponseStream":
        """A stream of `response.…` events."""
        return _ResponseStream(call, call_id, model)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(refusal)


def _head(call: Call, call_id: str, model: str, created: int) -> dict[str, Any]:
    """What every state of a response says."""
    echo = dict(call.echo)
    return {
        "id": call_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "model": model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "top_p": None,
        "tool_choice": "auto",
        "tools": [],
        "text": {"format": {"type": "text"}},
        "usage": None,
        **echo,
    }


def _response(call: Call, answer: Answer, items: list[dict[str, Any]]) -> dict[str, Any]:
    reason = _STOPS.get(answer.finish)
    body = _head(call, answer.id, answer.model, answer.created)
    body |= {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items,
        "usage": _usage(answer.usage),
    }
    if call.want_ids and answer.output_ids is not None:
        body["token_ids"] = list(answer.output_ids)
        body["prompt_token_ids"] = list(answer.prompt_ids or ())
    return body


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _items(call: Call, answer: Answer) -> list[dict[str, Any]]:
    """A reply as items: what was thought, what was said, the tool calls."""
    if call.local:
        return []
    message, items = answer.message, []
    if message.get("reasoning_content"):
        items.append(_reasoning(call, answer.id, message["reasoning_content"]))
    if message.get("content") or not message.get("tool_calls"):
        items.append(_message(answer.id, message.get("content") or "", _logprobs(call, answer)))
    return items + _calls(call, answer)


def _calls(call: Call, answer: Answer) -> list[dict[str, Any]]:
    return [call_item(made, call.tool_forms) for made in answer.message.get("tool_calls") or ()]


def _reasoning(call: Call, call_id: str, thought: str) -> dict[str, Any]:
    shown = [{"type": "summary_text", "text": thought}] if call.show_reasoning else []
    item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{call_id}", "summary": shown}
    if SEALED in call.echo.get("include", ()):
        item["encrypted_content"] = sealed(thought)
    return item


def _message(call_id: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{call_id}",
        "role": "assistant",
        "status": "completed",
        "content": [_text(text, logprobs)],
    }


def _text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _logprobs(call: Call, answer: Answer) -> list[dict[str, Any]]:
    if not call.want_logprobs or answer.logprobs is None:
        return []
    return token_logprobs(answer.texts, answer.logprobs)


class _ResponseStream:
    """One item at a time, each opened, filled and done.

    Text and summaries go out as they come, tool calls at the end, when they are whole. Thoughts
    that come after the text began are recorded, and not shown.
    """

    def __init__(self, call: Call, call_id: str, model: str) -> None:
        self._call = call
        self._id = call_id
        self._begun = _head(call, call_id, model, int(time.time()))
        self._number = -1
        self._items: list[dict[str, Any]] = []
        self._open: str | None = None
        self._said = ""

    def start(self, usage: Usage | None) -> bytes:  # noqa: ARG002 - told at the end
        created = self._event("response.created", response=self._begun)
        return created + self._event("response.in_progress", response=self._begun)

    def delta(self, delta: Delta) -> bytes:
        if delta.kind == "content" and delta.text:
            out = self._begin("message")
            self._said += delta.text
            return out + self._told("output_text.delta", delta=delta.text, logprobs=[])
        if delta.kind == "reasoning" and delta.text and self._open != "message":
            out = self._begin("reasoning")
            self._said += delta.text
            if self._call.show_reasoning:
                out += self._told("reasoning_summary_text.delta", delta=delta.text)
            return out
        return b""

    def finish(self, answer: Answer) -> bytes:
        logprobs = _logprobs(self._call, answer)
        calls = _calls(self._call, answer)
        silent = self._open != "message" and not calls and not self._call.local
        out = self._begin("message") if silent else b""
        out += self._end(logprobs)
        out += b"".join(map(self._tool, calls))
        response = _response(self._call, answer, self._items)
        return out + self._event(f"response.{response['status']}", response=response)

    def error(self, refusal: Refusal) -> bytes:
        code = refusal.code or ("rate_limit_exceeded" if refusal.status == 429 else "server_error")
        error = {"code": code, "message": refusal.message}
        failed = {**self._begun, "status": "failed", "error": error, "output": self._items}
        return self._event("response.failed", response=failed)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number, **fields}, kind)

    def _told(self, what: str, **fields: Any) -> bytes:
        """An event about the open item's text."""
        place = {"output_index": len(self._items)}
        if self._open == "message":
            place |= {"content_index": 0}
            return self._event(f"response.{what}", item_id=f"msg_{self._id}", **place, **fields)
        place |= {"summary_index": 0}
        return self._event(f"response.{what}", item_id=f"rs_{self._id}", **place, **fields)

    def _begin(self, kind: str) -> bytes:
        """Open an item of this kind, unless it is open."""
        if self._open == kind:
            return b""
        out = self._end([])
        self._open = kind
        if kind == "message":
            message = _message(self._id, "", [])
            out += self._added({**message, "status": "in_progress", "content": []})
            return out + self._told("content_part.added", part=_text("", []))
        out += self._added({"type": "reasoning", "id": f"rs_{self._id}", "summary": []})
        if self._call.show_reasoning:
            part = {"type": "summary_text", "text": ""}
            out += self._told("reasoning_summary_part.added", part=part)
        return out

    def _end(self, logprobs: list[dict[str, Any]]) -> bytes:
        """Close the open item, if any."""
        kind, text, out = self._open, self._said, b""
        if kind == "message":
            item = _message(self._id, text, logprobs)
            out += self._told("output_text.done", text=text, logprobs=logprobs)
            out += self._told("content_part.done", part=item["content"][0])
        elif kind == "reasoning":
            item = _reasoning(self._call, self._id, text)
            if self._call.show_reasoning:
                out += self._told("reasoning_summary_text.done", text=text)
                out += self._told("reasoning_summary_part.done", part=item["summary"][0])
        else:
            return b""
        self._open, self._said = None, ""
        return out + self._done(item)

    def _added(self, item: Mapping[str, Any]) -> bytes:
        at = len(self._items)
        return self._event("response.output_item.added", output_index=at, item=item)

    def _done(self, item: dict[str, Any]) -> bytes:
        at = len(self._items)
        self._items.append(item)
        return self._event("response.output_item.done", output_index=at, item=item)

    def _tool(self, item: dict[str, Any]) -> bytes:
        """A whole tool call."""
        opened: dict[str, Any] = {**item, "status": "in_progress"}
        if item["type"] == "local_shell_call":
            return self._added(opened) + self._done(item)
        custom = item["type"] == "custom_tool_call"
        key = "input" if custom else "arguments"
        stem = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        place: dict[str, Any] = {"item_id": item["id"], "output_index": len(self._items)}
        out = self._added({**opened, key: ""})
        out += self._event(f"{stem}.delta", **place, delta=item[key])
        ended = {key: item[key]} if custom else {key: item[key], "name": item["name"]}
        return out + self._event(f"{stem}.done", **place, **ended) + self._done(item)
