"""What dialects share on the way in: reading untrusted JSON, and building Chat Completions."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rllm_core.gateway.calls import Refusal

__all__ = [
    "chat_call",
    "chat_tool",
    "content_of",
    "image_part",
    "object_at",
    "objects_at",
    "refuse",
    "response_format",
    "text_at",
    "text_part",
    "unknown_fields",
]

_FIELDS_NAMED = 8
"""How many unknown fields of one request are named: the agent chooses their names."""


def refuse(where: str, expected: str, value: Any) -> Refusal:
    """The 400 for a value that is not what it should be."""
    shown = type(value).__name__ if isinstance(value, (dict, list)) else f"{value!r:.40}"
    return Refusal(400, f"{where} must be {expected}, not {shown}")


def object_at(where: str, value: Any) -> Mapping[str, Any]:
    """An object, or a refusal."""
    if not isinstance(value, dict):
        raise refuse(where, "an object", value)
    return value


def objects_at(where: str, value: Any) -> list[Mapping[str, Any]]:
    """A list of objects (None: empty), or a refusal."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise refuse(where, "a list", value)
    return [object_at(f"{where}[{i}]", each) for i, each in enumerate(value)]


def text_at(where: str, value: Any) -> str:
    """A text (None: empty), or a refusal."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise refuse(where, "a text", value)
    return value


def unknown_fields(body: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """The first fields of a request that a dialect does not know."""
    return tuple(sorted(key[:40] for key in body if key not in known)[:_FIELDS_NAMED])


def text_part(text: str) -> dict[str, Any]:
    """A content part of text."""
    return {"type": "text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    """A content part that shows the image at a URL (of the data kind, or on the web)."""
    return {"type": "image_url", "image_url": {"url": url}}


def content_of(parts: Sequence[Mapping[str, Any]]) -> Any:
    """Content of these parts: one text where all are texts, as every chat template takes it."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def chat_tool(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A function tool."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def chat_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call; its arguments become text."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The demand for a reply that fits a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
