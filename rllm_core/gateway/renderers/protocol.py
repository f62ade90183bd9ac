"""What the gateway asks of a renderer: the `renderers` library's protocol, plus `decode`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen

from rllm_core.types import Message

__all__ = [
    "Appending",
    "Extended",
    "Parsed",
    "ParsedCall",
    "Renderer",
    "TextTokenizer",
    "text_of",
]

Tools = Sequence[Mapping[str, Any]]


@frozen
class ParsedCall:
    """One attempt at a tool call. `status` is "ok", or says what is wrong with `raw`."""

    raw: str
    name: str | None = None
    arguments: Any = None
    status: str = "ok"
    id: str | None = None


@frozen
class Parsed:
    """A completion as a message: its text, its reasoning, its attempts at tool calls."""

    content: str
    reasoning_content: str | None = None
    tool_calls: Sequence[ParsedCall] = ()


@frozen
class Extended:
    """The next turn's prompt: the previous prompt and completion, then what the turn adds."""

    token_ids: list[int]


class Renderer(Protocol):
    """One model family's chat template."""

    def render_ids(
        self,
        messages: list[Message],
        *,
        tools: Tools | None = None,
        add_generation_prompt: bool = False,
    ) -> Sequence[int]:
        """The ids of a whole conversation; ValueError says what the template cannot hold."""
        ...

    def parse_response(self, ids: Sequence[int], *, tools: Tools | None = None) -> Parsed:
        """Sampled ids as a message."""
        ...

    def get_stop_token_ids(self) -> Sequence[int]:
        """The ids that end an assistant's turn."""
        ...

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: Tools | None = None,
    ) -> Extended | None:
        """The next prompt as an exact extension of what was sent and sampled, or None."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...


class Appending(Protocol):
    """A renderer that can say what a turn adds without looking at what came before it.

    The gateway prefers this to `bridge_to_next_turn`: its cost does not grow with the history.
    """

    def extension(
        self, completion: Sequence[int], new_messages: Sequence[Message]
    ) -> list[int] | None:
        """The ids that follow `completion`, up to where the next completion begins."""
        ...


class TextTokenizer(Protocol):
    """The few things our renderers need of a tokenizer.

    `encode` never yields a special token, whatever the text says: a user who types
    `<|im_end|>` does not end a turn.
    """

    def encode(self, text: str) -> list[int]:
        """The ids of plain text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens appear as they are written."""
        ...

    def token_id(self, token: str) -> int | None:
        """The id of one special token; None where the vocabulary lacks it."""
        ...


def text_of(message: Message) -> str:
    """A message's content as text; ValueError for parts that are not text."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if part.get("type") not in ("text", "input_text", "output_text", "refusal"):
            raise ValueError(
                f"this model reads text only, and a {message.get('role')} message holds a part "
                f"of type {part.get('type')!r}"
            )
        texts.append(part.get("text") or "")
    return "".join(texts)
