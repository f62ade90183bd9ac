"""OpenAI Completions: a prompt of text or of token ids, sampled from as it is.

No chat template, no tools, no reasoning: a token prompt goes upstream id for id, and each call is
a branch of its own in the token tree. `return_token_ids` is vLLM's.
"""

import time
from typing import Any

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.gateway.dialects.chat_request import parse_chat
from rllm_core.gateway.dialects.incoming import object_at, refuse
from rllm_core.gateway.dialects.outgoing import EVENT_STREAM, event, openai_error
from rllm_core.types import Usage

__all__ = ["Completions"]

_SAME = frozenset(
    {"model", "temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "stream", "n"}
    | {"stream_options", "return_token_ids", "frequency_penalty", "presence_penalty", "logit_bias"}
)
_LARGEST = 2**31 - 1
_TOKENS = 16
"""What the API samples where nothing is asked."""


class Completions:
    """The Completions dialect."""

    keepalive = b": keep-alive\n\n"
    media_type = EVENT_STREAM

    def parse(self, body: Any) -> Call:
        """The request as a `Call` with a `prompt`; a 400 names the field that is wrong."""
        body = object_at("the request body", body)
        if body.get("echo") or body.get("suffix") or body.get("best_of") not in (None, 1):
            raise Refusal(400, "echo, suffix and best_of are not served: a prompt is sampled from")
        prompt = _prompt(body.get("prompt"))
        chat = {key: body[key] for key in sorted(_SAME) if body.get(key) is not None}
        call = parse_chat({"max_tokens": _TOKENS, **chat, "messages": [_PLACEHOLDER]})
        call.prompt = prompt
        logprobs = body.get("logprobs")
        if logprobs not in (None, False, 0, 1):
            raise refuse("logprobs", "0 or 1: only the sampled token's is known", logprobs)
        call.want_logprobs = logprobs is not None and logprobs is not False
        return call

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A `text_completion` object."""
        choice = _choice(answer.message.get("content") or "", answer.finish)
        head = _head(answer.id, answer.model, answer.created)
        return {**head, "choices": [choice | _facts(call, answer)], "usage": _usage(answer.usage)}

    def stream(self, call: Call, call_id: str, model: str) -> "_CompletionStream":
        """A stream of `text_completion` events."""
        return _CompletionStream(call, call_id, model)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """OpenAI's error object."""
        return openai_error(refusal)


_PLACEHOLDER = {"role": "user", "content": ""}


def _prompt(prompt: Any) -> str | list[int]:
    """One prompt: a text or ids, or a list of one such."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(i) is int for i in prompt):
        if not all(0 <= i <= _LARGEST for i in prompt):
            raise Refusal(400, "prompt has numbers that are no token ids")
        return prompt
    raise refuse("prompt", "one text or one list of token ids, not empty", prompt)


def _head(call_id: str, model: str, created: int) -> dict[str, Any]:
    return {"id": call_id, "object": "text_completion", "created": created, "model": model}


def _choice(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _facts(call: Call, answer: Answer) -> dict[str, Any]:
    """Logprobs and ids, for those who ask."""
    facts: dict[str, Any] = {}
    if call.want_logprobs and answer.logprobs is not None:
        ends = [0]
        for text in answer.texts:
            ends.append(ends[-1] + len(text))
        facts["logprobs"] = {
            "tokens": list(answer.texts),
            "token_logprobs": list(answer.logprobs),
            "top_logprobs": None,
            "text_offset": ends[:-1],
        }
    if call.want_ids and answer.output_ids is not None:
        facts["token_ids"] = list(answer.output_ids)
        facts["prompt_token_ids"] = list(answer.prompt_ids or ())
    return facts


def _usage(usage: Usage) -> dict[str, int]:
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


class _CompletionStream:
    def __init__(self, call: Call, call_id: str, model: str) -> None:
        self._call = call
        self._head = _head(call_id, model, int(time.time()))

    def start(self, usage: Usage | None) -> bytes:  # noqa: ARG002 - told at the end
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.kind != "content":
            return b""
        return event({**self._head, "choices": [_choice(delta.text, None)]})

    def finish(self, answer: Answer) -> bytes:
        last = _choice("", answer.finish) | _facts(self._call, answer)
        out = event({**self._head, "choices": [last]})
        if self._call.include_usage:
            out += event({**self._head, "choices": [], "usage": _usage(answer.usage)})
        return out + b"data: [DONE]\n\n"

    def error(self, refusal: Refusal) -> bytes:
        return event(openai_error(refusal)) + b"data: [DONE]\n\n"
