"""An Anthropic Messages request, as Chat Completions.

Tool results become tool messages ahead of what else the user said in that turn; images in them
move to the user's message. Cache marks, betas, effort and metadata mean nothing here and are
left out; fields that nobody knows are counted. What only Anthropic's servers can run (its web
search, its file store) is refused by name.
"""

from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Call, Refusal
from rllm_core.gateway.dialects.chat_request import parse_chat
from rllm_core.gateway.dialects.incoming import (
    chat_call,
    chat_tool,
    content_of,
    image_part,
    object_at,
    objects_at,
    refuse,
    response_format,
    text_at,
    text_part,
    unknown_fields,
)
from rllm_core.types import Message

__all__ = ["parse_messages"]

_SAME = ("temperature", "top_p", "top_k", "max_tokens", "stream")
_NO_EFFECT = frozenset(
    {"metadata", "context_management", "service_tier", "cache_control", "betas", "speed"}
    | {"inference_geo"}
)
_READ = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "stop_sequences", "thinking"}
    | {"output_config", "output_format"}
)
_BILLING = "x-anthropic-billing-header:"
"""How Claude Code marks a system block that is meant for Anthropic's servers, not the model. Its
hash differs by conversation and would keep equal prompts apart."""


def parse_messages(body: Any) -> Call:
    """The request as a `Call`; a 400 names the field that is wrong and what it should be."""
    body = object_at("the request body", body)
    messages = _messages(body)
    if not messages or messages[-1].get("role") == "assistant":
        raise Refusal(
            400,
            "messages must end with a user message: a reply begun by the caller (prefill) cannot "
            "be continued",
        )
    chat: dict[str, Any] = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat |= {"model": text_at("model", body.get("model")), "messages": messages}
    tools = [_tool(f"tools[{i}]", t) for i, t in enumerate(objects_at("tools", body.get("tools")))]
    if tools:
        chat["tools"] = tools
        chat |= _tool_choice(body.get("tool_choice"))
    if body.get("stop_sequences") is not None:
        chat["stop"] = body["stop_sequences"]
    schema = _schema(body)
    if schema is not None:
        chat["response_format"] = response_format(schema)
    call = parse_chat(chat, {"stop": "stop_sequences"})
    thinking = object_at("thinking", body.get("thinking") or {})
    call.show_reasoning = thinking.get("type", "disabled") != "disabled"
    call.ignored = unknown_fields(body, _NO_EFFECT.union(_READ, _SAME))
    return call


def _messages(body: Mapping[str, Any]) -> list[Message]:
    messages: list[Message] = []
    system = _parts("system", body.get("system"))
    told = [part for part in system if not part.get("text", "").startswith(_BILLING)]
    if told:
        messages.append({"role": "system", "content": content_of(told)})
    turns = objects_at("messages", body.get("messages"))
    if not turns:
        raise Refusal(400, "messages must be a list of at least one message")
    for i, turn in enumerate(turns):
        where, role = f"messages[{i}]", turn.get("role")
        if role == "user":
            messages += _user(where, turn.get("content"))
        elif role == "assistant":
            messages.append(_assistant(where, turn.get("content")))
        elif role == "system":
            parts = _parts(where, turn.get("content"))
            messages.append({"role": "system", "content": content_of(parts)})
        else:
            raise refuse(f"{where}.role", "user, assistant or system", role)
    return messages


def _blocks(where: str, content: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Content as blocks, each with its place."""
    if isinstance(content, str):
        return [(where, text_part(content))]
    blocks = objects_at(f"{where}.content", content)
    return [(f"{where}.content[{i}]", block) for i, block in enumerate(blocks)]


def _parts(where: str, content: Any) -> list[dict[str, Any]]:
    return [_part(at, block) for at, block in _blocks(where, content)]


def _part(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """A block that shows something: text, an image, a document of text."""
    kind = block.get("type")
    if kind == "text":
        return text_part(text_at(f"{where}.text", block.get("text")))
    if kind == "tool_reference":
        return text_part(f"Tool loaded: {text_at(where, block.get('tool_name'))}")
    source = object_at(f"{where}.source", block.get("source")) if kind in _SOURCED else {}
    origin = source.get("type")
    data = text_at(f"{where}.source.data", source.get("data"))
    if kind == "image" and origin == "base64":
        media = text_at(f"{where}.source.media_type", source.get("media_type"))
        return image_part(f"data:{media};base64,{data}")
    if kind == "image" and origin == "url":
        return image_part(text_at(f"{where}.source.url", source.get("url")))
    if kind == "document" and origin == "text":
        return text_part(data)
    named = f"{kind!r:.40}" + (f" with a source of type {origin!r:.40}" if source else "")
    raise Refusal(400, f"{where}: blocks of type {named} are not served here")


_SOURCED = ("image", "document")


def _user(where: str, content: Any) -> list[Message]:
    results: list[Message] = []
    parts: list[dict[str, Any]] = []
    for at, block in _blocks(where, content):
        if block.get("type") == "tool_result":
            shown = _parts(at, block.get("content"))
            results.append(_result(at, block, shown))
            parts += [part for part in shown if part["type"] != "text"]
        else:
            parts.append(_part(at, block))
    said = [{"role": "user", "content": content_of(parts)}] if parts or not results else []
    return [*results, *said]


def _result(where: str, block: Mapping[str, Any], shown: list[dict[str, Any]]) -> Message:
    """A tool's result; one that is an error and does not say so is made to."""
    text = content_of([part for part in shown if part["type"] == "text"])
    if block.get("is_error") and "error" not in text.lower():
        text = f"Error: {text}"
    call_id = text_at(f"{where}.tool_use_id", block.get("tool_use_id"))
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _assistant(where: str, content: Any) -> Message:
    texts, thoughts, calls = [], [], []
    for at, block in _blocks(where, content):
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(text_at(f"{at}.thinking", block.get("thinking")))
        elif kind == "tool_use":
            given = object_at(f"{at}.input", block.get("input") or {})
            call_id = text_at(f"{at}.id", block.get("id"))
            calls.append(chat_call(call_id, text_at(f"{at}.name", block.get("name")), given))
        elif kind != "redacted_thinking":
            texts.append(_part(at, block).get("text") or "")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _tool(where: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise Refusal(
            400,
            f"{where}: tools of type {kind!r:.60} are known to Anthropic's models and servers "
            "only; describe it as a tool with an input_schema, or leave it out",
        )
    schema = object_at(f"{where}.input_schema", tool.get("input_schema") or {"type": "object"})
    if not isinstance(tool.get("name"), str):
        raise refuse(f"{where}.name", "a text", tool.get("name"))
    return chat_tool(tool["name"], text_at(f"{where}.description", tool.get("description")), schema)


_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _tool_choice(choice: Any) -> dict[str, Any]:
    choice = object_at("tool_choice", choice or {"type": "auto"})
    kind = choice.get("type")
    out: dict[str, Any] = {}
    if kind == "tool":
        name = text_at("tool_choice.name", choice.get("name"))
        out["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif isinstance(kind, str) and kind in _CHOICES:
        out["tool_choice"] = _CHOICES[kind]
    else:
        raise refuse("tool_choice.type", "auto, any, tool or none", kind)
    if choice.get("disable_parallel_tool_use"):
        out["parallel_tool_calls"] = False
    return out


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON schema that the reply must fit, if any."""
    config = object_at("output_config", body.get("output_config") or {})
    wanted = config.get("format") or body.get("output_format") or {}
    wanted = object_at("output_config.format", wanted)
    if wanted.get("type") != "json_schema":
        return None
    return object_at("output_config.format.schema", wanted.get("schema"))
