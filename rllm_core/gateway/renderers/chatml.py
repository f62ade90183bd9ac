r"""ChatML (`<|im_start|>role\n…<|im_end|>\n`) with tools in Hermes form, append-only.

Written for SmolLM2, whose own template knows no tools; without tools the ids are those of its
template (a test compares them). A conversation that ends in a sampled turn extends by appending,
so every turn bridges, cut ones included: a turn without its `<|im_end|>` is closed by rendered
tokens.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from rllm_core.gateway.renderers.hermes import (
    call_text,
    parse_calls,
    response_text,
    tools_text,
)
from rllm_core.gateway.renderers.protocol import Extended, Parsed, TextTokenizer, Tools, text_of
from rllm_core.types import Message

__all__ = ["SMOLLM2_SYSTEM", "ChatMLRenderer"]

SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What SmolLM2's template says as system message where the conversation has none."""


class ChatMLRenderer:
    """ChatML over any tokenizer that has `<|im_start|>` and `<|im_end|>`.

    `default_system` is inserted where the first message is no system message; None inserts
    nothing. `thinking` says what `<think>…</think>` is: "none" plain text; "keep" reasoning that
    stays in the history; "strip" reasoning that the template drops from all turns before the
    last user message, as Qwen3's does. A template that strips is not append-only: a new user
    message then cannot bridge, and opens a new branch.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        default_system: str | None = None,
        thinking: Literal["none", "keep", "strip"] = "none",
    ) -> None:
        self.tokenizer = tokenizer
        self.default_system = default_system
        self.thinking = thinking
        self._start = self._special("<|im_start|>")
        self._end = self._special("<|im_end|>")
        self._newline = tokenizer.encode("\n")
        self._prompt = [self._start, *tokenizer.encode("assistant\n")]

    def _special(self, token: str) -> int:
        found = self.tokenizer.token_id(token)
        if found is None:
            raise ValueError(f"the tokenizer has no {token}: it is not a ChatML model's")
        return found

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, never a special token."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self.tokenizer.decode(ids)

    def get_stop_token_ids(self) -> list[int]:
        """`<|im_end|>`."""
        return [self._end]

    def render_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Tools | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """The whole conversation."""
        system, rest = self._split_system(messages)
        if tools:
            system = f"{system}\n\n{tools_text(tools)}" if system else tools_text(tools)
        ids = [] if system is None else self._turn("system", system)
        ids += self._turns(rest)
        return ids + self._prompt if add_generation_prompt else ids

    def _split_system(self, messages: Sequence[Message]) -> tuple[str | None, Sequence[Message]]:
        if messages and messages[0].get("role") in ("system", "developer"):
            return text_of(messages[0]), messages[1:]
        return self.default_system, messages

    def _turns(self, messages: Sequence[Message]) -> list[int]:
        last_user = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
        ids: list[int] = []
        responses: list[str] = []  # results that follow one another share a turn
        for i, message in enumerate(messages):
            if message.get("role") in ("tool", "function"):
                responses.append(response_text(text_of(message)))
                continue
            ids += self._responses(responses)
            responses = []
            ids += self._message(message, with_thinking=i > last_user)
        return ids + self._responses(responses)

    def _responses(self, responses: Iterable[str]) -> list[int]:
        text = "\n".join(responses)
        return self._turn("user", text) if text else []

    def _message(self, message: Message, *, with_thinking: bool) -> list[int]:
        role = message.get("role") or "user"
        text = text_of(message)
        if role == "developer":
            role = "system"
        if role == "assistant":
            text = "\n".join(filter(None, [text, *map(call_text, message.get("tool_calls") or ())]))
            reasoning = message.get("reasoning_content")
            if reasoning and (self.thinking == "keep" or with_thinking):
                text = (
                    f"<think>\n{reasoning}\n</think>\n\n{text}" if self.thinking != "none" else text
                )
        return self._turn(role, text)

    def _turn(self, role: str, text: str) -> list[int]:
        return [self._start, *self.encode(f"{role}\n{text}"), self._end, *self._newline]

    def parse_response(self, ids: Sequence[int], *, tools: Tools | None = None) -> Parsed:
        """The turn's text; tool calls are looked for where tools were offered."""
        closed = bool(len(ids)) and ids[-1] == self._end
        text = self.decode(ids[:-1] if closed else ids)
        reasoning = None
        if self.thinking != "none" and text.lstrip().startswith("<think>"):
            reasoning, _, text = text.lstrip().removeprefix("<think>").partition("</think>")
            reasoning, text = reasoning.strip(), text.lstrip("\n")
        if not tools:
            return Parsed(text, reasoning)
        content, calls = parse_calls(text)
        return Parsed(content, reasoning, calls)

    def extension(
        self, completion: Sequence[int], new_messages: Sequence[Message]
    ) -> list[int] | None:
        """What closes the sampled turn, the new messages, and the next turn's opening."""
        roles = {m.get("role") for m in new_messages}
        if "assistant" in roles or (self.thinking == "strip" and "user" in roles):
            return None
        closed = bool(len(completion)) and completion[-1] == self._end
        close = self._newline if closed else [self._end, *self._newline]
        return [*close, *self._turns(new_messages), *self._prompt]

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: Tools | None = None,  # noqa: ARG002 - told once, in the system message
    ) -> Extended | None:
        """The previous ids, then `extension`."""
        added = self.extension(previous_completion_ids, new_messages)
        if added is None:
            return None
        return Extended([*previous_prompt_ids, *previous_completion_ids, *added])
