"""The wire formats that agents speak, each behind the small protocol `Dialect`.

A dialect turns a request into a `Call`, and an `Answer`, a stream of `Delta`s or a `Refusal`
back into its own form. It knows nothing of sessions, tokens or upstreams. Every request becomes
Chat Completions first: `chat_request.py` checks what all have in common.

    chat.py        Chat Completions;  chat_request.py its requests
    anthropic.py   Anthropic Messages;  anthropic_request.py
    completions.py Completions
    responses.py   Responses;  responses_request.py, responses_items.py, responses_tools.py
    gemini.py      Gemini;  gemini_request.py, gemini_schema.py
    incoming.py    reading untrusted JSON, building messages;  outgoing.py events and pieces
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from rllm_core.gateway.dialects.anthropic import AnthropicMessages
from rllm_core.gateway.dialects.chat import ChatCompletions
from rllm_core.gateway.dialects.completions import Completions
from rllm_core.gateway.dialects.gemini import Gemini
from rllm_core.gateway.dialects.protocol import Dialect, StreamForm
from rllm_core.gateway.dialects.responses import Responses

__all__ = [
    "DIALECTS",
    "AnthropicMessages",
    "ChatCompletions",
    "Completions",
    "Dialect",
    "Gemini",
    "Responses",
    "StreamForm",
    "Target",
    "target_of",
]

_ANTHROPIC = AnthropicMessages()

DIALECTS: dict[str, Dialect] = {
    "chat/completions": ChatCompletions(),
    "completions": Completions(),
    "messages": _ANTHROPIC,
    "responses": Responses(),
}
"""By the path after the API's version, where that is all there is to know."""


@frozen
class Target:
    """What a path asks for: a reply in `dialect`, or (where `counted` is set) a token count.

    `counted` makes the count's body.
    """

    dialect: Dialect
    counted: Callable[[int], dict[str, Any]] | None = None


def target_of(path: str, query: Mapping[str, str]) -> Target | None:
    """What a POST to this path asks for; None where no dialect serves it."""
    if path in DIALECTS:
        return Target(DIALECTS[path])
    if path == "messages/count_tokens":
        return Target(_ANTHROPIC, _ANTHROPIC.counted)
    gemini = Gemini.of(path, query)
    if gemini is None:
        return None
    return Target(gemini, gemini.counted if gemini.method == "countTokens" else None)
