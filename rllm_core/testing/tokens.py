"""Prompts in, completions and batches out: for tests of backends, without gateway or engine."""

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rllm_core.backend.batch import TokenBatch
from rllm_core.upstream import SamplingParams, TokenPrompt, Upstream

__all__ = ["Completion", "complete", "complete_all", "make_batch"]

SECONDS = 300.0
"""Time that completions may take altogether."""


@frozen
class Completion:
    """A whole completion; `versions` has one entry a token."""

    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: str | None


async def complete(upstream: Upstream, prompt: Sequence[int], **params: Any) -> Completion:
    """One completion; `params` are those of `SamplingParams`."""
    ids: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    finish = None
    asked = TokenPrompt(array("i", prompt)), SamplingParams(**params)
    async with asyncio.timeout(SECONDS):
        async for piece in upstream.sample(*asked):
            ids.extend(piece.ids)
            logprobs.extend(piece.logprobs)
            versions.extend([piece.version] * len(piece.ids))
            finish = piece.finish
    return Completion(ids, logprobs, versions, finish)


async def complete_all(
    upstream: Upstream, prompts: Sequence[Sequence[int]], *, seed: int, **params: Any
) -> list[Completion]:
    """A completion of each prompt, all at once, each with a seed of its own."""
    seeds = (seed * 100_003 + i for i in range(len(prompts)))
    calls = (complete(upstream, p, seed=s, **params) for p, s in zip(prompts, seeds, strict=True))
    return list(await asyncio.gather(*calls))


def make_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    advantages: Sequence[float],
    *,
    temperature: float = 1.0,
) -> TokenBatch:
    """A token-mean batch of prompt + completion sequences, one group a distinct prompt."""
    import numpy as np

    pairs = list(zip(prompts, completions, strict=True))
    offsets = np.cumsum([0, *(len(p) + len(c.ids) for p, c in pairs)])
    target, logprobs, advantage = (np.zeros(offsets[-1], dtype=np.float32) for _ in range(3))
    for s, (prompt, completion) in enumerate(pairs):
        at = slice(offsets[s] + len(prompt), offsets[s + 1])
        target[at], logprobs[at], advantage[at] = 1, completion.logprobs, advantages[s]
    group = {prompt: g for g, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
    ids = [[*p, *c.ids] for p, c in pairs]
    return TokenBatch(
        ids_T=np.array([i for sequence in ids for i in sequence], dtype=np.int32),
        offsets_S1=offsets.astype(np.int64),
        target_T=target.astype(bool),
        logprobs_T=logprobs,
        weight_T=(target / max(1.0, float(target.sum()))).astype(np.float32),
        advantage_T=advantage,
        group_S=np.array([group[tuple(p)] for p in prompts], dtype=np.int32),
        temperature_S=np.full(len(pairs), temperature, dtype=np.float32),
        version_S2=np.zeros((len(pairs), 2), dtype=np.int32),
        names_S=tuple(f"sequence-{i}" for i in range(len(pairs))),
    )
