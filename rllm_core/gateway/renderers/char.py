"""The renderer of the built-in tiny model: one character, one token, no template at all."""

from collections.abc import Sequence

from rllm_core.gateway.renderers.protocol import Extended, Parsed, Tools, text_of
from rllm_core.types import Message

__all__ = ["TINY_VOCABULARY", "CharRenderer"]

TINY_VOCABULARY = "0123456789=+ab\n#"


class CharRenderer:
    """The messages' texts, one after the other; `stop` ends a reply.

    Every conversation bridges, since a turn adds nothing but its own characters. Tools cannot
    be told to such a model, and are refused.
    """

    def __init__(self, vocabulary: str = TINY_VOCABULARY, stop: str = "#") -> None:
        self.vocabulary = vocabulary
        self._ids = {character: i for i, character in enumerate(vocabulary)}
        self._stop = self._ids[stop]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; ValueError names characters that the model does not have."""
        try:
            return [self._ids[c] for c in text]
        except KeyError:
            odd = "".join(sorted(set(text) - self._ids.keys()))
            raise ValueError(
                f"the character model knows only {self.vocabulary!r}; the prompt has {odd!r:.60}"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """One character an id."""
        return "".join(self.vocabulary[i] for i in ids)

    def get_stop_token_ids(self) -> list[int]:
        """The one character that ends a reply."""
        return [self._stop]

    def render_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        add_generation_prompt: bool = False,  # noqa: ARG002 - the protocol's; there is none
    ) -> list[int]:
        """The characters of all contents."""
        if tools:
            raise ValueError("the character model takes no tools")
        return self.encode("".join(map(text_of, messages)))

    def parse_response(self, ids: Sequence[int], *, tools: Tools | None = None) -> Parsed:  # noqa: ARG002
        """The characters before the stop."""
        end = len(ids) - 1 if len(ids) and ids[-1] == self._stop else len(ids)
        return Parsed(self.decode(ids[:end]))

    def extension(
        self, completion: Sequence[int], new_messages: Sequence[Message]
    ) -> list[int] | None:
        """The new characters; `completion` needs no closing."""
        del completion
        if any(m.get("role") == "assistant" for m in new_messages):
            return None
        return self.render_ids(new_messages)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: Tools | None = None,  # noqa: ARG002
    ) -> Extended | None:
        """The previous ids, then the new characters."""
        added = self.extension(previous_completion_ids, new_messages)
        if added is None:
            return None
        return Extended([*previous_prompt_ids, *previous_completion_ids, *added])
