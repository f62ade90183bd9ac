"""Re-scoring: whether recorded logprobs are those of the weights that sampled the tokens.

For each version whose weights are kept (0, the model as it was loaded, and the checkpoints) the
backend computes the logprobs of some sequences again, at their temperature. What differs is the
sampler's numerics against the trainer's, or a defect.
"""

import random
from collections.abc import Iterator
from typing import Any

from attrs import asdict, evolve, frozen

from rllm_core.algorithms import Credit
from rllm_core.backend import LoadedModel, ModelSpec
from rllm_core.config import load
from rllm_core.errors import ConfigError
from rllm_core.providers import Local
from rllm_core.resolve import check
from rllm_core.store import RunReader
from rllm_core.training.batches import build_batch
from rllm_core.training.sequences import Sequence, sequences

__all__ = ["Rescored", "rescore"]


@frozen
class Rescored:
    """|recorded − recomputed logprob| (nats) over the targets of some sequences of a version."""

    version: int
    sequences: int
    tokens: int
    mean: float
    largest: float

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON data."""
        return asdict(self)


async def rescore(reader: RunReader, sample: int) -> list[Rescored]:
    """Score `sample` random sequences of each kept version again.

    ConfigError where the run's model is not one that a backend here can load.
    """
    kept = {0, *(step for step, _ in reader.checkpoints())}
    drawn = _draw(reader, kept, sample)
    if not drawn:
        return []
    resolved = check(load(text=reader.info.config_toml))
    if not isinstance(resolved.policy, Local) or resolved.backend is None:
        raise ConfigError("the run's policy is a server's model: its weights are not here")
    backend = resolved.backend.make()
    try:
        await backend.start()
        spec = ModelSpec(resolved.policy.source, resolved.config.policy.context_window)
        return await _versions(await backend.model("policy", spec), reader, drawn)
    finally:
        await backend.close()


async def _versions(
    loaded: LoadedModel, reader: RunReader, drawn: dict[int, list[Sequence]]
) -> list[Rescored]:
    """Load the versions in turn, the original first."""
    directories = dict(reader.checkpoints())
    found = []
    for version in sorted(drawn):
        if version in directories:
            await loaded.model.load(directories[version])
        found.append(await _score(loaded, version, drawn[version]))
    return found


async def _score(loaded: LoadedModel, version: int, chosen: list[Sequence]) -> Rescored:
    import numpy as np

    credit = {(s.episode, s.trajectory): Credit(s.episode, s.trajectory, 1.0) for s in chosen}
    groups = {s.episode: i for i, s in enumerate(chosen)}
    batch = build_batch(chosen, credit, groups, "token-sum")
    outputs = await loaded.model.forward(batch)
    again = np.asarray(outputs.logprobs)[batch.target_T]
    gap = np.abs(again - batch.logprobs_T[batch.target_T])
    return Rescored(version, len(chosen), len(gap), float(gap.mean()), float(gap.max()))


def _draw(reader: RunReader, kept: set[int], sample: int) -> dict[int, list[Sequence]]:
    """Some sequences of each kept version, drawn evenly in one pass (reservoir sampling)."""
    source = random.Random(0)  # noqa: S311 - which sequences are looked at is no secret
    drawn: dict[int, list[Sequence]] = {}
    seen: dict[int, int] = {}
    for sequence in _all_sequences(reader):
        low, high = sequence.versions
        if low != high or low not in kept:
            continue
        chosen = drawn.setdefault(low, [])
        seen[low] = seen.get(low, 0) + 1
        place = len(chosen) if len(chosen) < sample else source.randrange(seen[low])
        if place < sample:
            chosen[place : place + 1] = [sequence]
    return drawn


def _all_sequences(reader: RunReader) -> Iterator[Sequence]:
    """Those of every phase; a greedy sample's logprobs are recorded at temperature 1."""
    for episode in reader.episodes():
        for sequence in sequences(episode):
            yield evolve(sequence, temperature=sequence.temperature or 1.0)
