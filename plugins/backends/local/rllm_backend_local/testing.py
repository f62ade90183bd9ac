"""For tests and measurements: prompts in, a batch out, without gateway or engine."""

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rllm_core.backend.batch import TokenBatch
from rllm_core.upstream import SamplingParams, TokenPrompt, Upstream

__all__ = ["Completed", "complete", "complete_all", "make_batch", "standardised"]


class Completed(NamedTuple):
    """A whole completion; `versions` has one entry a token."""

    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: str | None


async def complete(upstream: Upstream, prompt: Sequence[int], **params: Any) -> Completed:
    """One completion; `params` are those of `SamplingParams`."""
    done = Completed([], [], [], None)
    asked = TokenPrompt(array("i", prompt)), SamplingParams(**params)
    async for piece in upstream.sample(*asked):
        done.ids.extend(piece.ids)
        done.logprobs.extend(piece.logprobs)
        done.versions.extend([piece.version] * len(piece.ids))
        done = done._replace(finish=piece.finish)
    return done


async def complete_all(
    upstream: Upstream, prompts: Sequence[Sequence[int]], *, seed: int | None = None, **params: Any
) -> list[Completed]:
    """A completion of each prompt, all at once, each with a seed of its own."""
    seeds = [None if seed is None else seed * 100_003 + i for i in range(len(prompts))]
    calls = (complete(upstream, p, seed=s, **params) for p, s in zip(prompts, seeds, strict=True))
    return await asyncio.wait_for(asyncio.gather(*calls), 300)


def make_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completed],
    advantages: Sequence[float],
    *,
    temperature: float = 1.0,
) -> TokenBatch:
    """A token-mean batch of prompt + completion sequences, one group a distinct prompt."""
    pairs = list(zip(prompts, completions, strict=True))
    offsets = np.cumsum([0, *(len(p) + len(c.ids) for p, c in pairs)])
    target, logprobs, advantage = (np.zeros(offsets[-1], dtype=np.float32) for _ in range(3))
    for s, (prompt, completion) in enumerate(pairs):
        at = slice(offsets[s] + len(prompt), offsets[s + 1])
        target[at], logprobs[at], advantage[at] = 1, completion.logprobs, advantages[s]
    group = {prompt: g for g, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
    n = len(pairs)
    return TokenBatch(
        ids_T=np.concatenate([[*p, *c.ids] for p, c in pairs]).astype(np.int32),
        offsets_S1=offsets.astype(np.int64),
        target_T=target.astype(bool),
        logprobs_T=logprobs,
        weight_T=(target / max(1, np.count_nonzero(advantage))).astype(np.float32),
        advantage_T=advantage,
        group_S=np.array([group[tuple(p)] for p in prompts], dtype=np.int32),
        temperature_S=np.full(n, temperature, dtype=np.float32),
        version_S2=np.zeros((n, 2), dtype=np.int32),
        names_S=tuple(f"episode-{i}" for i in range(n)),
    )


def standardised(rewards: Sequence[float], group: int) -> list[float]:
    """GRPO's credit: each reward standardised within its group of consecutive ones."""
    table = np.array(rewards, dtype=np.float64).reshape(-1, group)
    centred = table - table.mean(1, keepdims=True)
    flat: list[float] = (centred / (table.std(1, keepdims=True, ddof=1) + 1e-4)).ravel().tolist()
    return flat
