"""A Chat Completions request, checked and turned into a `Call`.

Unknown fields are left alone: a server that speaks the format itself may know them. What could
not be recorded truthfully (several choices) is refused; what only a token upstream cannot do
(forced tools, schemas) is refused there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rllm_core.gateway.calls import Call, Refusal

__all__ = ["parse_chat"]

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TEXTS = ("tool_call_id", "name", "reasoning_content", "reasoning")
_SAMPLING: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (lambda v: _number(v) and v >= 0, "a number of at least 0"),
    "top_p": (lambda v: _number(v) and 0 < v <= 1, "a number over 0, at most 1"),
    "top_k": (lambda v: _integer(v) and v >= -1, "a whole number"),
    "seed": (_integer, "a whole number"),
}


_OWN_NAMES: Mapping[str, str] = {}


def _bad(message: str) -> Refusal:
    return Refusal(400, message)


def parse_chat(body: Any, names: Mapping[str, str] = _OWN_NAMES) -> Call:
    """The request as a `Call`; a 400 names the field that is wrong and what it should be.

    Other dialects come through here too: `names` gives their own names of sampling parameters.
    """
    if not isinstance(body, dict):
        raise _bad(f"the request body must be a JSON object, not {type(body).__name__}")
    if body.get("n") not in (None, 1):
        raise _bad(
            "n must be 1: each choice is a call of its own here; send the request n times instead"
        )
    for key in ("stream_options", "response_format"):
        if not isinstance(body.get(key), (dict, type(None))):
            raise _bad(f"{key} must be an object")
    options = body.get("stream_options") or {}
    return Call(
        body=body,
        messages=_messages(body.get("messages")),
        tools=_tools(body.get("tools")),
        model=str(body.get("model") or ""),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        asked=_asked(body, names),
        max_tokens=_max_tokens(body, names),
        tool_choice=body.get("tool_choice"),
        want_logprobs=bool(body.get("logprobs")),
        want_ids=bool(body.get("return_token_ids")),
    )


def _messages(messages: Any) -> list[Mapping[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list of at least one message")
    for i, message in enumerate(messages):
        _check_message(f"messages[{i}]", message)
    return messages


def _check_message(where: str, message: Any) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise _bad(f"{where} must be an object whose role is one of {', '.join(sorted(_ROLES))}")
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and _is_part(part) for part in content):
            raise _bad(f"{where}.content must be a text or a list of parts, each with its type")
    elif content is not None and not isinstance(content, str):
        raise _bad(f"{where}.content must be a text or a list of parts")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
        raise _bad(f"{where}.tool_calls must be a list of objects with a function")
    for key in _TEXTS:
        if not isinstance(message.get(key), (str, type(None))):
            raise _bad(f"{where}.{key} must be a text")


def _is_part(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("type"), str) and isinstance(part.get("text"), (str, type(None)))


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), (str, type(None))):
        return False
    function = call.get("function")
    return function is None or (
        isinstance(function, dict) and isinstance(function.get("name"), (str, type(None)))
    )


def _tools(tools: Any) -> tuple[Mapping[str, Any], ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise _bad("tools must be a list")
    for i, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        function = tool.get("function") if isinstance(tool, dict) else None
        if kind != "function" or not isinstance(function, dict):
            raise _bad(f"tools[{i}] must be of type function, not {kind!r}")
        if not isinstance(function.get("name"), str):
            raise _bad(f"tools[{i}].function.name must be a text")
    return tuple(tools)


def _asked(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    asked = {}
    for key, (fits, expected) in _SAMPLING.items():
        value = body.get(key)
        if value is None:
            continue
        if not fits(value):
            raise _bad(f"{names.get(key, key)} must be {expected}, not {value!r:.40}")
        asked[key] = value
    if body.get("stop") is not None:
        asked["stop"] = _stops(names.get("stop", "stop"), body["stop"])
    return asked


def _stops(name: str, stop: Any) -> tuple[str, ...]:
    texts: Sequence[Any] = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list) or not all(isinstance(s, str) for s in texts):
        raise _bad(f"{name} must be a text or a list of texts")
    return tuple(filter(None, texts))


def _max_tokens(body: Mapping[str, Any], names: Mapping[str, str]) -> int | None:
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if value is not None:
            if not _integer(value) or value < 1:
                name = names.get(key, key)
                raise _bad(f"{name} must be a whole number of at least 1, not {value!r:.40}")
            return int(value)
    return None
