"""Gemini's contents - turns of parts - as Chat Completions messages."""

import json
import re
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
from rllm_core.types import Message

__all__ = ["camel", "messages_of"]

Body = Mapping[str, Any]

_ALONE = ("output", "result", "error")
"""The usual single key of a function's response: its text then stands without JSON around it."""


def messages_of(body: Body, *, counting: bool = False) -> list[Message]:
    """The conversation of a request; a 400 where it is none, or ends with the model's turn."""
    reader = _Reader()
    told = body.get("systemInstruction")
    if told is not None:
        turn = {"parts": [{"text": told}]} if isinstance(told, str) else told
        parts = _shown("systemInstruction", object_at("systemInstruction", turn))
        if parts:
            reader.messages.append({"role": "system", "content": content_of(parts)})
    contents = body.get("contents")
    turns = objects_at("contents", [contents] if isinstance(contents, dict) else contents)
    if not turns:
        raise Refusal(400, "contents must be a list of at least one content")
    for i, turn in enumerate(turns):
        reader.turn(f"contents[{i}]", turn)
    if not counting and turns[-1].get("role") == "model":
        raise Refusal(400, "contents must end with a user turn or a function response")
    return reader.messages


def _parts(where: str, turn: Body) -> list[tuple[str, dict[str, Any]]]:
    """A turn's parts, each with its place, their keys in camel case."""
    given = turn.get("parts")
    parts = objects_at(f"{where}.parts", [given] if isinstance(given, dict) else given)
    return [(f"{where}.parts[{i}]", camel(part)) for i, part in enumerate(parts)]


def camel(fields: Body) -> dict[str, Any]:
    """An object with its field names in camel case: Google's APIs take both spellings."""
    return {_UNDERSCORE.sub(lambda m: m[1].upper(), key): v for key, v in fields.items()}


_UNDERSCORE = re.compile(r"_([a-z])")


def _shown(where: str, turn: Body) -> list[dict[str, Any]]:
    """The parts that show something, of a turn that has no others."""
    return [_part(at, part) for at, part in _parts(where, turn)]


def _part(where: str, part: Body) -> dict[str, Any]:
    """Text or an image."""
    if "text" in part:
        return text_part(text_at(f"{where}.text", part["text"]))
    for key in ("inlineData", "fileData"):
        if key not in part:
            continue
        data = camel(object_at(f"{where}.{key}", part[key]))
        media = text_at(f"{where}.{key}.mimeType", data.get("mimeType"))
        if not media.startswith("image/"):
            raise Refusal(400, f"{where}.{key}: media of type {media!r:.60} is not served here")
        if key == "fileData":
            return image_part(text_at(f"{where}.fileUri", data.get("fileUri")))
        return image_part(f"data:{media};base64,{text_at(f'{where}.data', data.get('data'))}")
    named = ", ".join(sorted(part)) or "nothing"
    raise Refusal(400, f"{where}: a part with {named:.60} is not served here")


class _Reader:
    """Turns contents into messages, remembering which calls still wait for their response."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: list[tuple[str, str]] = []
        self._named = 0

    def turn(self, where: str, turn: Body) -> None:
        """Add one content."""
        role = turn.get("role")
        if role == "model":
            self._model(where, turn)
        elif role in (None, "", "user", "function"):
            self._user(where, turn)
        else:
            raise refuse(f"{where}.role", "user, model or function", role)

    def _model(self, where: str, turn: Body) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls = []
        for at, part in _parts(where, turn):
            if "functionCall" in part:
                calls.append(self._call(f"{at}.functionCall", part["functionCall"]))
            elif "text" in part:
                kept = thoughts if part.get("thought") else texts
                kept.append(text_at(f"{at}.text", part["text"]))
            elif part.keys() - {"thoughtSignature", "thought"}:
                _part(at, part)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)

    def _call(self, where: str, call: Any) -> dict[str, Any]:
        call = object_at(where, call)
        name = text_at(f"{where}.name", call.get("name"))
        call_id = text_at(f"{where}.id", call.get("id")) or self._new_id()
        self._waiting.append((name, call_id))
        return chat_call(call_id, name, object_at(f"{where}.args", call.get("args") or {}))

    def _new_id(self) -> str:
        """An id for a call that came back without: the same each time the history is sent."""
        self._named += 1
        return f"call_{self._named}"

    def _user(self, where: str, turn: Body) -> None:
        results: list[Message] = []
        parts: list[dict[str, Any]] = []
        for at, part in _parts(where, turn):
            if "functionResponse" in part:
                given = object_at(f"{at}.functionResponse", part["functionResponse"])
                results.append(self._result(f"{at}.functionResponse", given))
                parts += _shown(f"{at}.functionResponse", given)
            else:
                parts.append(_part(at, part))
        self.messages += results
        if parts or not results:
            self.messages.append({"role": "user", "content": content_of(parts)})

    def _result(self, where: str, given: Body) -> Message:
        name = text_at(f"{where}.name", given.get("name"))
        call_id = text_at(f"{where}.id", given.get("id"))
        response = object_at(f"{where}.response", given.get("response") or {})
        return {
            "role": "tool",
            "tool_call_id": self._answered(name, call_id),
            "content": _response_text(response),
        }

    def _answered(self, name: str, call_id: str) -> str:
        """The id of the call that a response answers: as it says, else the first that fits."""
        fits = [w for w in self._waiting if w[1] == call_id] if call_id else []
        fits = fits or [w for w in self._waiting if w[0] == name and not call_id]
        if not fits:
            return call_id
        self._waiting.remove(fits[0])
        return fits[0][1]


def _response_text(response: Body) -> str:
    (key, value), *more = [*response.items()] or [("", "")]
    if not more and key in _ALONE and isinstance(value, str):
        failed = key == "error" and "error" not in value.lower()
        return f"Error: {value}" if failed else value
    return json.dumps(response)
