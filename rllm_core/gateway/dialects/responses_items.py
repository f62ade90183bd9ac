"""The input items of a Responses request, as Chat Completions messages.

One reply came as several items (reasoning, text, calls) and comes back as such: neighbours that
can be of one reply become one assistant message. Reasoning that was handed out sealed
(`encrypted_content`) is opened again.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from rllm_core.gateway.calls import Refusal
from rllm_core.gateway.dialects.incoming import (
    chat_call,
    content_of,
    image_part,
    object_at,
    objects_at,
    refuse,
    text_at,
    text_part,
)
from rllm_core.gateway.dialects.responses_tools import flat_name
from rllm_core.types import Message

__all__ = ["messages_of", "sealed"]

_SEAL = "rllm:"
_ROLES = {"system": "system", "developer": "system", "user": "user"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def sealed(reasoning: str) -> str:
    """Reasoning as a text that clients hand back unread."""
    return _SEAL + base64.b64encode(reasoning.encode("utf-8", "surrogatepass")).decode()


def messages_of(items: Any) -> list[Message]:
    """The messages that a request's `input` stands for."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[Message] = []
    reply = _Reply(messages)
    for i, item in enumerate(objects_at("input", items)):
        _take(f"input[{i}]", item, messages, reply)
    return messages


class _Reply:
    """The assistant message that is being gathered from items, at the end of `messages`."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._open: dict[str, Any] = {}

    def _before(self, *filled: str) -> dict[str, Any]:
        """The open message, or a new one where it has ended or holds one of `filled` already."""
        ended = not self._messages or self._messages[-1] is not self._open
        if ended or any(self._open.get(key) for key in filled):
            self._open = {"role": "assistant", "content": ""}
            self._messages.append(self._open)
        return self._open

    def think(self, thought: str) -> None:
        message = self._before("content", "tool_calls")
        told = [message.get("reasoning_content", ""), thought]
        message["reasoning_content"] = "\n".join(filter(None, told))

    def say(self, text: str) -> None:
        self._before("content", "tool_calls")["content"] = text

    def call(self, call: Mapping[str, Any]) -> None:
        self._before().setdefault("tool_calls", []).append(call)


def _take(where: str, item: Mapping[str, Any], messages: list[Message], reply: _Reply) -> None:
    kind = item.get("type") or ("message" if "role" in item else None)
    role = item.get("role")
    if kind == "message" and role == "assistant":
        parts = _parts(where, item.get("content"))
        reply.say("".join(part.get("text") or "" for part in parts))
    elif kind == "message":
        if not isinstance(role, str) or role not in _ROLES:
            raise refuse(f"{where}.role", "user, assistant, system or developer", role)
        content = content_of(_parts(where, item.get("content")))
        messages.append({"role": _ROLES[role], "content": content})
    elif kind == "reasoning":
        thought = _reasoning(where, item)
        if thought:
            reply.think(thought)
    elif kind in _CALLS:
        reply.call(_call(where, kind, item))
    elif kind in _OUTPUTS:
        messages.extend(_output(where, item))
    elif kind == "additional_tools" or (isinstance(kind, str) and kind.startswith("web_search")):
        pass  # tools are gathered by the request; a search was OpenAI's own
    else:
        raise Refusal(400, f"{where}: items of type {kind!r:.60} are not served here")


def _parts(where: str, content: Any, key: str = "content") -> list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return [text_part(content or "")]
    at = f"{where}.{key}"
    return [_part(f"{at}[{i}]", part) for i, part in enumerate(objects_at(at, content))]


def _part(where: str, part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text", "summary_text", "refusal"):
        key = "refusal" if kind == "refusal" else "text"
        return text_part(text_at(f"{where}.{key}", part.get(key)))
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return image_part(part["image_url"])
    raise Refusal(400, f"{where}: parts of type {kind!r:.60} are not served here")


def _reasoning(where: str, item: Mapping[str, Any]) -> str:
    """What was thought: the sealed text where it is ours, else the content, else the summary."""
    seal = text_at(f"{where}.encrypted_content", item.get("encrypted_content"))
    if seal.startswith(_SEAL):
        try:
            raw = base64.b64decode(seal.removeprefix(_SEAL), validate=True)
            return raw.decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            pass  # changed on the way: the readable forms still stand
    for key in ("content", "summary"):
        texts = objects_at(f"{where}.{key}", item.get(key))
        told = [text_at(f"{where}.{key}[{i}].text", t.get("text")) for i, t in enumerate(texts)]
        if any(told):
            return "\n".join(told)
    return ""


_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def _call(where: str, kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    call_id = text_at(f"{where}.call_id", item.get("call_id"))
    if kind == "local_shell_call":
        action = object_at(f"{where}.action", item.get("action"))
        return chat_call(call_id, "local_shell", {k: v for k, v in action.items() if k != "type"})
    namespace = text_at(f"{where}.namespace", item.get("namespace"))
    name = flat_name(text_at(f"{where}.name", item.get("name")), namespace)
    if kind == "custom_tool_call":
        return chat_call(call_id, name, {"input": text_at(f"{where}.input", item.get("input"))})
    arguments = item.get("arguments")
    if not isinstance(arguments, str):  # some clients send the object itself
        arguments = json.dumps(arguments or {})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _output(where: str, item: Mapping[str, Any]) -> list[Message]:
    """A tool's result; images in it follow as the user's."""
    parts = _parts(where, item.get("output"), "output")
    texts = [part for part in parts if part["type"] == "text"]
    call_id = text_at(f"{where}.call_id", item.get("call_id") or item.get("id"))
    result: Message = {"role": "tool", "tool_call_id": call_id, "content": content_of(texts)}
    images = [part for part in parts if part["type"] != "text"]
    return [result, {"role": "user", "content": images}] if images else [result]
