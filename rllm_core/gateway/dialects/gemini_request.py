"""A Gemini request, as Chat Completions.

Names are read in both of Google's spellings (`systemInstruction`, `system_instruction`). Calls
and responses are matched by id where the agent keeps ids, else by name, in order. Thoughts'
budgets, safety settings, labels and caches have no effect here; fields that nobody knows are
counted. Google's own tools (search, code execution) are refused by name.
"""

from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Call, Refusal
from rllm_core.gateway.dialects.chat_request import parse_chat
from rllm_core.gateway.dialects.gemini_contents import camel, messages_of
from rllm_core.gateway.dialects.gemini_schema import json_schema
from rllm_core.gateway.dialects.incoming import (
    chat_tool,
    object_at,
    objects_at,
    refuse,
    response_format,
    text_at,
    unknown_fields,
)

__all__ = ["parse_contents"]

_SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "responseLogprobs": "logprobs",
    "logprobs": "top_logprobs",
}
_KNOWN = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"}
    | {"safetySettings", "cachedContent", "labels", "serviceTier", "store"}
)
_CONFIG = frozenset(
    {*_SAMPLING, "candidateCount", "thinkingConfig", "responseModalities", "responseMimeType"}
    | {"responseSchema", "responseJsonSchema"}
)


def parse_contents(body: Any, *, counting: bool = False) -> Call:
    """The request as a `Call`; a 400 names the field that is wrong and what it should be.

    A count may wrap the request that it is about.
    """
    body = camel(object_at("the request body", body))
    if counting and "generateContentRequest" in body:
        body = camel(object_at("generateContentRequest", body["generateContentRequest"]))
    config = camel(object_at("generationConfig", body.get("generationConfig") or {}))
    if config.get("candidateCount") not in (None, 1):
        raise Refusal(400, "candidateCount must be 1: each candidate is a call of its own here")
    messages = messages_of(body, counting=counting)
    chat = {
        name: _whole(config[key]) for key, name in _SAMPLING.items() if config.get(key) is not None
    }
    if chat.get("stop") == []:
        del chat["stop"]
    chat |= {"messages": messages, **_tools(body), **_format(config)}
    call = parse_chat(chat, {name: key for key, name in _SAMPLING.items()})
    thinking = camel(object_at("thinkingConfig", config.get("thinkingConfig") or {}))
    call.show_reasoning = bool(thinking.get("includeThoughts"))
    call.ignored = (*unknown_fields(body, _KNOWN), *unknown_fields(config, _CONFIG))
    return call


def _whole(value: Any) -> Any:
    """A whole number as one, since Google's own client sends `topK` as 64.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools = []
    for i, entry in enumerate(objects_at("tools", body.get("tools"))):
        tool = camel(entry)
        for kind in tool:
            if kind != "functionDeclarations":
                raise Refusal(
                    400,
                    f"tools[{i}]: {kind!r:.60} is run by Google's servers only; declare it as a "
                    "function, or leave it out",
                )
        where = f"tools[{i}].functionDeclarations"
        declared = objects_at(where, tool.get("functionDeclarations"))
        tools += [_tool(f"{where}[{n}]", camel(each)) for n, each in enumerate(declared)]
    return {"tools": tools, **_tool_choice(body)} if tools else {}


def _tool(where: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(declared.get("name"), str):
        raise refuse(f"{where}.name", "a text", declared.get("name"))
    schema = declared.get("parametersJsonSchema")
    if schema is None:
        schema = json_schema(declared.get("parameters"))
    schema = object_at(f"{where}.parameters", schema or {"type": "object", "properties": {}})
    return chat_tool(
        declared["name"], text_at(f"{where}.description", declared.get("description")), schema
    )


_MODES = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "MODE_UNSPECIFIED": "auto"}


def _tool_choice(body: Mapping[str, Any]) -> dict[str, Any]:
    config = camel(object_at("toolConfig", body.get("toolConfig") or {}))
    where = "toolConfig.functionCallingConfig"
    calling = camel(object_at(where, config.get("functionCallingConfig") or {}))
    mode = text_at(f"{where}.mode", calling.get("mode")).upper() or "AUTO"
    allowed = calling.get("allowedFunctionNames") or []
    if mode in _MODES:
        return {"tool_choice": _MODES[mode]}
    if mode != "ANY":
        raise refuse(f"{where}.mode", "AUTO, ANY, NONE or VALIDATED", mode)
    if isinstance(allowed, list) and len(allowed) == 1:
        return {"tool_choice": {"type": "function", "function": {"name": allowed[0]}}}
    return {"tool_choice": "required"}


def _format(config: Mapping[str, Any]) -> dict[str, Any]:
    schema = config.get("responseJsonSchema") or json_schema(config.get("responseSchema"))
    modalities = config.get("responseModalities") or ["TEXT"]
    if modalities != ["TEXT"]:
        raise Refusal(400, f"responseModalities must be TEXT alone, not {modalities!r:.60}")
    if schema:
        return {"response_format": response_format(object_at("responseSchema", schema))}
    if config.get("responseMimeType") in (None, "", "text/plain"):
        return {}
    return {"response_format": {"type": "json_object"}}
