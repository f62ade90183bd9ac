"""When two messages are the same message.

Agents send their history back changed in ways that mean nothing: a text as one content part,
arguments re-serialised, cache marks, white space around a reply, reasoning dropped. The
canonical form of a message is blind to these. A conversation is compared by one running hash,
so a request costs one pass over its own messages and nothing of the history is kept.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from rllm_core.types import Message

__all__ = ["Running", "call_ids", "canonical"]


def canonical(message: Message, turn_of: Mapping[str, str]) -> str:
    """The canonical form of a message.

    `turn_of` maps the tool-call ids that the session's replies have handed out to the id that
    names the reply: an assistant message that carries one of them is that reply, whatever text
    came back. Reasoning never counts: some agents drop it.
    """
    role = message.get("role")
    if role != "assistant":
        return _frame(
            str(role),
            _content(message.get("content")),
            str(message.get("tool_call_id") or ""),
            "" if role in ("tool", "function") else str(message.get("name") or ""),
        )
    for call_id in call_ids(message):
        if call_id in turn_of:
            return _frame("turn", turn_of[call_id])
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    return _frame("assistant", _content(message.get("content")).strip(), *calls)


def call_ids(message: Message) -> list[str]:
    """The ids of an assistant message's tool calls."""
    return [str(call["id"]) for call in message.get("tool_calls") or () if call.get("id")]


def _frame(*parts: str) -> str:
    """Parts joined so that no two lists of parts look alike."""
    return "".join([f"{len(part)}:{part}" for part in parts])


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in content]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return json.dumps(parts, sort_keys=True) if parts else ""


def _part(part: Mapping[str, Any]) -> Any:
    if part.get("type") in ("text", "input_text", "output_text"):
        return str(part.get("text") or "")
    return {key: value for key, value in part.items() if key != "cache_control"}


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # not JSON: it is compared as a text
            arguments = json.loads(arguments or "{}")
    return _frame(str(function.get("name")), json.dumps(arguments or {}, sort_keys=True))


class Running:
    """The running hash of a conversation: who speaks in it, its tools, its messages so far."""

    __slots__ = ("_hash",)

    def __init__(self, *head: str, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        told = json.dumps(list(tools), sort_keys=True) if tools else ""
        self._hash = blake2b(digest_size=16)
        self.add(_frame(*head, told))

    def add(self, form: str) -> None:
        """Append one message, in canonical form."""
        self._hash.update(form.encode("utf-8", "surrogatepass"))

    def key(self) -> bytes:
        """The hash so far."""
        return self._hash.digest()

    def after(self, form: str) -> bytes:
        """What the hash would be after one more message."""
        copy = self._hash.copy()
        copy.update(form.encode("utf-8", "surrogatepass"))
        return copy.digest()
