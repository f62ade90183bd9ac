"""OpenAI Chat Completions, with vLLM's `return_token_ids`."""

import time
from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.gateway.dialects.chat_request import parse_chat
from rllm_core.gateway.dialects.outgoing import EVENT_STREAM, event, openai_error, token_logprobs
from rllm_core.types import Usage

__all__ = ["ChatCompletions"]


class ChatCompletions:
    """The Chat Completions dialect."""

    keepalive = b": keep-alive\n\n"
    media_type = EVENT_STREAM

    def parse(self, body: Any) -> Call:
        """See `chat_request`."""
        return parse_chat(body)

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A `chat.completion` object."""
        choice = {
            "index": 0,
            "message": answer.message,
            "finish_reason": answer.finish,
            "logprobs": _logprobs(call, answer),
        }
        body = {
            "id": answer.id,
            "object": "chat.completion",
            "created": answer.created,
            "model": answer.model,
            "choices": [choice],
            "usage": _usage(answer),
        }
        if call.want_ids and answer.output_ids is not None:
            choice["token_ids"] = list(answer.output_ids)
            body["prompt_token_ids"] = list(answer.prompt_ids or ())
        return body

    def stream(self, call: Call, call_id: str, model: str) -> "_ChatStream":
        """A stream of `chat.completion.chunk` events."""
        return _ChatStream(call, call_id, model)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(refusal)


def _usage(answer: Answer) -> dict[str, int]:
    prompt, completion = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _logprobs(call: Call, answer: Answer) -> dict[str, Any] | None:
    if not call.want_logprobs or answer.logprobs is None:
        return None
    return {"content": token_logprobs(answer.texts, answer.logprobs), "refusal": None}


class _ChatStream:
    def __init__(self, call: Call, call_id: str, model: str) -> None:
        self._call = call
        self._head = {
            "id": call_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, **choice: Any
    ) -> dict[str, Any]:
        body = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None, **choice}
        return {**self._head, "choices": [body]}

    def start(self, usage: Usage | None) -> bytes:  # noqa: ARG002 - told at the end
        return event(self._chunk({"role": "assistant", "content": ""}))

    def delta(self, delta: Delta) -> bytes:
        if delta.kind == "content":
            return event(self._chunk({"content": delta.text}))
        if delta.kind == "reasoning":
            return event(self._chunk({"reasoning_content": delta.text}))
        function: dict[str, Any] = {"arguments": delta.text}
        part: dict[str, Any] = {"index": delta.index, "function": function}
        if delta.call_id is not None:
            part |= {"id": delta.call_id, "type": "function"}
            function["name"] = delta.name
        return event(self._chunk({"tool_calls": [part]}))

    def finish(self, answer: Answer) -> bytes:
        last = self._chunk({}, answer.finish, logprobs=_logprobs(self._call, answer))
        if self._call.want_ids and answer.output_ids is not None:
            last["choices"][0]["token_ids"] = list(answer.output_ids)
            last["prompt_token_ids"] = list(answer.prompt_ids or ())
        out = event(last)
        if self._call.include_usage:
            out += event({**self._head, "choices": [], "usage": _usage(answer)})
        return out + b"data: [DONE]\n\n"

    def error(self, refusal: Refusal) -> bytes:
        return event(ChatCompletions().error(refusal)) + b"data: [DONE]\n\n"
