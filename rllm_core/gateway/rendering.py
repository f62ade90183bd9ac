"""A renderer in use: off the event loop where it is slow, one call at a time, ids as arrays."""

import asyncio
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rllm_core.gateway.calls import Refusal
from rllm_core.gateway.renderers.protocol import Parsed, Renderer
from rllm_core.gateway.tree import Node, TokenTree
from rllm_core.types import Message, TokenIds

__all__ = ["Rendering"]

T = TypeVar("T")
Tools = Sequence[Mapping[str, Any]]

_CHARACTERS = 2_000
"""What is rendered on the loop: about 1 ms of work, where a thread hop costs 0.1 ms."""

_TOKENS = 4_000
"""What is parsed on the loop: decoding is some ten times quicker than encoding."""


class Rendering:
    """One renderer, guarded by one lock."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self._lock = asyncio.Lock()
        appending: Callable[[TokenIds, Sequence[Message]], list[int] | None] | None
        appending = getattr(renderer, "extension", None)  # see `Appending`
        self._extension = appending
        self.stop_token_ids = tuple(renderer.get_stop_token_ids())

    async def whole(self, messages: Sequence[Message], tools: Tools) -> TokenIds:
        """A conversation from its first message to where the reply begins."""
        ids = await self._run(
            messages,
            lambda: self.renderer.render_ids(
                list(messages), tools=list(tools) or None, add_generation_prompt=True
            ),
        )
        return array("i", ids)

    async def bridge(
        self, tree: TokenTree, parent: Node, fresh: Sequence[Message], tools: Tools
    ) -> TokenIds | None:
        """What the new messages add after a recorded call; None where it cannot be proved."""
        extended = await self._run(fresh, lambda: self._extend(tree, parent, fresh, tools))
        return None if extended is None else array("i", extended)

    def _extend(
        self, tree: TokenTree, parent: Node, fresh: Sequence[Message], tools: Tools
    ) -> Sequence[int] | None:
        completion = parent.step.output_ids
        if self._extension is not None:
            added: Sequence[int] | None = self._extension(completion, fresh)
            return added
        whole = tree.sequence(parent).tolist()
        split = len(whole) - len(completion)
        bridged = self.renderer.bridge_to_next_turn(
            whole[:split], whole[split:], list(fresh), tools=list(tools) or None
        )
        if bridged is None or bridged.token_ids[: len(whole)] != whole:
            return None
        return bridged.token_ids[len(whole) :]

    def prompt(self, prompt: str | list[int]) -> tuple[TokenIds, str]:
        """A prompt that no template touches, as ids and as text; what it cannot be is a 400."""
        encode: Callable[[str], list[int]] | None = getattr(self.renderer, "encode", None)
        if encode is None and isinstance(prompt, str):
            raise Refusal(400, "this model's renderer takes no plain text: send token ids")
        try:
            if encode is None or isinstance(prompt, list):
                ids = [int(i) for i in prompt]
                return array("i", ids), self.renderer.decode(ids)
            return array("i", encode(prompt)), prompt
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            raise Refusal(400, f"this prompt cannot be sampled from: {error}") from error

    def text(self, ids: TokenIds) -> Parsed:
        """A sampled completion as plain text, without the token that ended it."""
        end = len(ids) - 1 if ids and ids[-1] in self.stop_token_ids else len(ids)
        return Parsed(self.renderer.decode(ids[:end]))

    async def parse(self, ids: TokenIds, tools: Tools) -> Parsed:
        """A sampled reply as a message."""
        if len(ids) < _TOKENS and not self._lock.locked():
            return self.renderer.parse_response(ids, tools=list(tools) or None)
        async with self._lock:
            return await asyncio.to_thread(
                self.renderer.parse_response, ids, tools=list(tools) or None
            )

    async def _run(self, messages: Sequence[Message], work: Callable[[], T]) -> T:
        """Run `work` here when the messages are short; what they cannot be is a 400."""
        try:
            if not self._lock.locked() and _characters(messages) < _CHARACTERS:
                return work()
            async with self._lock:
                return await asyncio.to_thread(work)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Refusal(400, f"these messages cannot be rendered: {error}") from error


def _characters(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            total += len(content)
        elif content:
            total += sum(len(part.get("text") or "") for part in content)
    return total
