"""A token upstream that answers from a script instead of from a model."""

import asyncio
import math
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from attrs import frozen

from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt

__all__ = ["Reply", "ScriptedUpstream"]


class _Codec(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def get_stop_token_ids(self) -> Sequence[int]: ...


@frozen
class Reply:
    """One scripted completion.

    `ids` instead of `text` gives the exact tokens. `stop` False leaves out the stop token, as a
    sample cut by a stop string does. `fail_after` raises `error` after so many tokens.
    """

    text: str = ""
    ids: Sequence[int] | None = None
    stop: bool = True
    error: Exception | None = None
    fail_after: int = 0


Script = Callable[[str, SamplingParams], "str | Reply | Exception"]


class ScriptedUpstream:
    """Answers in order from `replies`, the last one for ever; or from a function of the prompt.

    `codec` is a renderer of ours (encode, decode, stop ids). The sampler's rules hold: a reply
    longer than `max_tokens` is cut with finish "length". `delay` is in seconds before the first
    piece; `piece` is how many tokens arrive at once (0: all), each piece with the next of
    `versions`. `seen` keeps every prompt and its parameters, in order.
    """

    def __init__(
        self,
        replies: Sequence[str | Reply | Exception] | Script,
        codec: _Codec,
        *,
        version: int = 0,
        versions: Sequence[int] = (),
        context_window: int = 8192,
        delay: float = 0.0,
        piece: int = 0,
    ) -> None:
        self.version = version
        self.context_window = context_window
        self.seen: list[tuple[TokenPrompt, SamplingParams]] = []
        self._replies = replies
        self._codec = codec
        self._versions = tuple(versions) or (version,)
        self._delay = delay
        self._piece = piece

    def _next(self, prompt: TokenPrompt, params: SamplingParams) -> Reply:
        if callable(self._replies):
            found = self._replies(self._codec.decode(prompt.ids), params)
        else:
            found = self._replies[min(len(self.seen), len(self._replies)) - 1]
        if isinstance(found, Exception):
            return Reply(error=found)
        return found if isinstance(found, Reply) else Reply(found)

    def _ids(self, reply: Reply) -> list[int]:
        if reply.ids is not None:
            return list(reply.ids)
        ids = self._codec.encode(reply.text)
        return [*ids, *self._codec.get_stop_token_ids()[:1]] if reply.stop else ids

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """The next reply of the script, piece by piece."""
        self.seen.append((prompt, params))
        reply = self._next(prompt, params)
        if self._delay:
            await asyncio.sleep(self._delay)
        ids = self._ids(reply)
        finish = "stop" if len(ids) <= params.max_tokens else "length"
        ids = ids[: params.max_tokens]
        if reply.error is not None:
            ids, finish = ids[: reply.fail_after], ""
        size = self._piece or max(1, len(ids))
        starts = range(0, max(1, len(ids)), size)
        for n, start in enumerate(starts):
            part = ids[start : start + size]
            version = self._versions[min(n, len(self._versions) - 1)]
            last = start == starts[-1]
            yield Sampled(
                array("i", part), _logprobs(part), version, (finish or None) if last else None
            )
            if self._delay:
                await asyncio.sleep(0)
        if reply.error is not None:
            raise reply.error

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """The same made-up logprobs that `sample` gives; the first is 0."""
        values = _logprobs(prompt.ids)
        values[:1] = array("f", [0.0] * len(values[:1]))
        return values


def _logprobs(ids: Sequence[int]) -> Logprobs:
    """A number that only depends on the token, so that a shifted array is noticed."""
    return array("f", [-math.log(2 + i % 97) for i in ids])
