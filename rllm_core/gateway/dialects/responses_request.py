"""An OpenAI Responses request, as Chat Completions.

What a request leaves to OpenAI's servers (stored conversations, prompt templates, background work)
is refused; what has no effect here (caching, metadata, service tiers, storing) is accepted.
"""

from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Call, Refusal
from rllm_core.gateway.dialects.chat_request import parse_chat
from rllm_core.gateway.dialects.incoming import (
    object_at,
    refuse,
    text_at,
    unknown_fields,
)
from rllm_core.gateway.dialects.responses_items import messages_of
from rllm_core.gateway.dialects.responses_tools import Tools
from rllm_core.types import Message

__all__ = ["LOGPROBS", "SEALED", "parse_responses"]

LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
"""What `include` may ask for; other wishes have no effect here."""

_SAME = ("temperature", "top_p", "top_k", "seed", "stop", "stream", "return_token_ids")
_ECHOED = frozenset(
    {"instructions", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "tools", "user"}
    | {"max_output_tokens", "previous_response_id", "reasoning", "text", "truncation", "metadata"}
    | {"store", "include", "prompt_cache_key"}
)
_READ = frozenset({"model", "input", "top_logprobs", "generate", "background", "prompt"})
_NO_EFFECT = frozenset(
    {"service_tier", "safety_identifier", "prompt_cache_retention", "client_metadata", "type"}
    | {"stream_options", "max_tool_calls", "conversation"}
)
_ELSEWHERE = ("conversation", "prompt", "background")


def parse_responses(body: Any) -> Call:
    """The request as a `Call`; a 400 names the field that is wrong and what it should be."""
    body = object_at("the request body", body)
    for key in _ELSEWHERE:
        if body.get(key):
            raise Refusal(400, f"{key} needs OpenAI's own servers: send the input itself")
    after = text_at("previous_response_id", body.get("previous_response_id")) or None
    messages = _messages(body)
    tools = _tools(body)
    chat = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat |= {"model": text_at("model", body.get("model")), "messages": messages}
    chat |= _tool_fields(body, tools) | _format(body) | _logprobs(body)
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    reasoning = object_at("reasoning", body.get("reasoning") or {})
    if reasoning.get("effort") is not None:
        chat["reasoning_effort"] = text_at("reasoning.effort", reasoning["effort"])
    call = parse_chat(chat)
    call.tool_forms = tools.forms
    call.show_reasoning = bool(reasoning.get("summary") or reasoning.get("generate_summary"))
    call.after = after
    call.instructed = bool(body.get("instructions"))
    call.local = body.get("generate") is False
    call.echo = {key: body[key] for key in sorted(_ECHOED) if body.get(key) is not None}
    known = _NO_EFFECT.union(_READ, _SAME, _ECHOED)
    call.ignored = (*unknown_fields(body, known), *sorted(set(tools.dropped)))
    return call


def _messages(body: Mapping[str, Any]) -> list[Message]:
    messages = messages_of(body.get("input"))
    if not messages:
        if body.get("generate") is not False:
            raise refuse("input", "a text or a list of at least one item", body.get("input"))
        messages = messages_of("")
    if body.get("instructions"):
        told = text_at("instructions", body["instructions"])
        messages.insert(0, {"role": "system", "content": told})
    return messages


def _tools(body: Mapping[str, Any]) -> Tools:
    """The request's tools, and those that its input adds."""
    tools = Tools()
    tools.add("tools", body.get("tools"))
    items = body.get("input")
    for i, item in enumerate(items if isinstance(items, list) else ()):
        if item.get("type") == "additional_tools":
            tools.add(f"input[{i}].tools", item.get("tools"))
    return tools


def _tool_fields(body: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    if not tools.functions:
        return {}
    fields: dict[str, Any] = {"tools": tools.functions}
    choice = tools.choice(body.get("tool_choice"))
    if choice is not None:
        fields["tool_choice"] = choice
    if body.get("parallel_tool_calls") is False:
        fields["parallel_tool_calls"] = False
    return fields


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    text = object_at("text", body.get("text") or {})
    wanted = object_at("text.format", text.get("format") or {})
    kind = wanted.get("type", "text")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind != "json_schema":
        raise refuse("text.format.type", "text, json_object or json_schema", kind)
    schema = {key: value for key, value in wanted.items() if key != "type"}
    schema["schema"] = object_at("text.format.schema", wanted.get("schema"))
    return {"response_format": {"type": kind, kind: {"name": "reply", **schema}}}


def _logprobs(body: Mapping[str, Any]) -> dict[str, Any]:
    wishes = body.get("include")
    if wishes is not None and not isinstance(wishes, list):
        raise refuse("include", "a list", wishes)
    fields: dict[str, Any] = {}
    if LOGPROBS in (wishes or ()) or body.get("top_logprobs"):
        fields = {"logprobs": True}
    if body.get("top_logprobs"):
        fields["top_logprobs"] = body["top_logprobs"]
    return fields
