"""Continuous batching: completions join and leave at any decode step.

One `step` gives every live row its next token. Requests that wait are admitted first: all
that fit into the rows and the cache's budget, in order of arrival, with one prefill.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from attrs import define, field
from torch import Tensor

from rllm_backend_local.frames import Piece
from rllm_backend_local.picking import Choice, pick
from rllm_core.errors import ModelError
from rllm_core.upstream import SamplingParams

__all__ = ["Engine", "Sampler"]


class Engine(Protocol):
    """What samples: `llama.LlamaEngine` or `generic.GenericEngine`."""

    def refresh(self) -> None:
        """Take over the trainer's weights."""
        ...

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether the cache may hold so much."""
        ...

    def admit(self, prompts: Sequence[Sequence[int]], reserve: int) -> Tensor:
        """Prefill new rows; logits of their ends."""
        ...

    def decode(self, tokens: Sequence[int]) -> Tensor:
        """One more token a row; logits of the next."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Let row i be what `rows[i]` was."""
        ...

    def score(self, ids: Sequence[int]) -> list[float]:
        """The logprob of each id."""
        ...


@define
class Completion:
    """One request: its prompt, how it chooses, and how far it has come."""

    call: int
    prompt: list[int]
    choice: Choice
    stops: frozenset[int]
    limit: int
    made: int = 0
    last: int = 0
    done: bool = False

    @property
    def reserve(self) -> int:
        """The longest that prompt and completion may become."""
        return len(self.prompt) + self.limit


@define
class Sampler:
    """All completions of one model. `stops` are the model's own end tokens."""

    engine: Engine
    context_window: int
    max_rows: int
    stops: frozenset[int]
    seed: int
    version: int = 0
    live: list[Completion] = field(factory=list)
    waiting: deque[Completion] = field(factory=deque)
    unseeded: int = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.live or self.waiting)

    def add(self, call: int, prompt: list[int], params: SamplingParams) -> None:
        """Queue a request; `ModelError` where it cannot be honoured."""
        self._check(prompt, params)
        limit = min(params.max_tokens, self.context_window - len(prompt))
        seed = f"{self.seed}/{self.unseeded}" if params.seed is None else f"{params.seed}"
        self.unseeded += params.seed is None
        choice = Choice(params.temperature, params.top_p, params.top_k, random.Random(seed))  # noqa: S311
        stops = frozenset(params.stop_token_ids) or self.stops
        self.waiting.append(Completion(call, prompt, choice, stops, limit))

    def abort(self, call: int) -> None:
        """Forget a request, waiting or live."""
        self.waiting = deque(c for c in self.waiting if c.call != call)
        for completion in self.live:
            completion.done |= completion.call == call

    def step(self) -> list[Piece]:
        """One token for every row."""
        self._drop_finished()
        logits = []
        if self.live:
            logits.append(self.engine.decode([c.last for c in self.live]))
        joined = self._next()
        if joined:
            reserve = max(c.reserve for c in (*self.live, *joined))
            logits.append(self.engine.admit([c.prompt for c in joined], reserve))
            self.live += joined
        return self._pick(logits) if logits else []

    def _pick(self, logits: list[Tensor]) -> list[Piece]:
        import torch

        tokens, logprobs = pick(torch.cat(logits), [c.choice for c in self.live])
        pieces = []
        for completion, token, logprob in zip(self.live, tokens, logprobs, strict=True):
            completion.made += 1
            completion.last = token
            finish = None
            if token in completion.stops:
                finish = "stop"
            elif completion.made == completion.limit:
                finish = "length"
            completion.done |= finish is not None
            pieces.append(Piece(completion.call, [token], [logprob], self.version, finish))
        return pieces

    def _next(self) -> list[Completion]:
        joined: list[Completion] = []
        reserve = max((c.reserve for c in self.live), default=0)
        while self.waiting and len(self.live) + len(joined) < self.max_rows:
            reserve = max(reserve, self.waiting[0].reserve)
            if not self.engine.fits(len(self.live) + len(joined) + 1, reserve):
                break
            joined.append(self.waiting.popleft())
        return joined

    def _drop_finished(self) -> None:
        rows = [row for row, c in enumerate(self.live) if not c.done]
        count = len(rows)
        if count < len(self.live):
            # Rows past the new end move into the holes; the others stay where they lie.
            tail = [row for row in rows if row >= count]
            rows = [tail.pop() if self.live[row].done else row for row in range(count)]
            self.engine.keep(rows)
            self.live = [self.live[row] for row in rows]

    def fail(self) -> list[int]:
        """Give up every request; their call ids."""
        calls = [c.call for c in (*self.live, *self.waiting) if not c.done]
        self.engine.keep([])
        self.live = []
        self.waiting.clear()
        return calls

    def _check(self, prompt: list[int], params: SamplingParams) -> None:
        if not prompt:
            raise ModelError("the local sampler was given an empty prompt")
        if not 0 < params.top_p <= 1:  # others in the batch would fail with it
            raise ModelError(f"top_p is above 0 and at most 1, not {params.top_p}")
        room = self.context_window - len(prompt)
        if room < 1 or params.max_tokens < 1:
            raise ModelError(
                f"no room for a token: the prompt has {len(prompt)}, the context window "
                f"{self.context_window}, max_tokens is {params.max_tokens}"
            )
        if not self.engine.fits(1, len(prompt) + min(params.max_tokens, room)):
            raise ModelError(
                f"a prompt of {len(prompt)} tokens with max_tokens {params.max_tokens} is more "
                "than the sampler's cache may hold in this machine's free memory",
                remedy="Lower max_tokens or the context window, or free memory.",
            )
