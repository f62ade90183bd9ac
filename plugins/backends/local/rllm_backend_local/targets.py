"""Which positions of a micro-batch predict which targets.

Several targets may hang on one position (the end of a shared prompt predicts the first token
of every completion), so logits are computed once per position and temperature.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from attrs import define, field
from torch import Tensor

from rllm_backend_local.packing import Row
from rllm_core.backend.batch import TokenBatch

__all__ = ["Part", "Targets", "find_targets"]


class Part(NamedTuple):
    """Some positions and their targets, as tensors.

    `at_P` are positions in the flattened micro-batch, `heat_P` their temperatures; target n
    has the id `id_N[n]` and is predicted at position `at_P[where_N[n]]`.
    """

    at_P: Tensor
    heat_P: Tensor
    where_N: Tensor
    id_N: Tensor

    def logprobs(self, logits_PV: Tensor) -> Tensor:
        """The logprob of each target, given the logits at `at_P`."""
        scaled_PV = logits_PV.float() / self.heat_P[:, None]
        return scaled_PV[self.where_N, self.id_N] - torch.logsumexp(scaled_PV, -1)[self.where_N]


@define
class Targets:
    """Per position and temperature: the targets' ids and their indices in the batch."""

    found: dict[tuple[int, float], list[tuple[int, int]]] = field(factory=dict)

    @property
    def indices(self) -> list[int]:
        """Each target's index in the batch, in the order that `parts` follows."""
        return [index for targets in self.found.values() for _, index in targets]

    def parts(self, limit: int) -> Iterator[Part]:
        """All of it, at most `limit` positions at a time."""
        keys = list(self.found)
        for start in range(0, len(keys), limit):
            chosen = keys[start : start + limit]
            pairs = [(p, i) for p, key in enumerate(chosen) for i, _ in self.found[key]]
            at, heat = zip(*chosen, strict=True)
            where, ids = zip(*pairs, strict=True)
            yield Part(torch.tensor(at), torch.tensor(heat), torch.tensor(where), torch.tensor(ids))


def find_targets(
    batch: TokenBatch, rows: Sequence[Row], spans: Sequence[slice], length: int
) -> Targets:
    """The targets of these rows, padded to `length`; a row's member m is `spans[m]`.

    Temperature 0 counts as 1, as in sampling.
    """
    targets = Targets()
    sequence_of = {int(start): s for s, start in enumerate(batch.offsets_S1[:-1])}
    for b, row in enumerate(rows):
        for member, path in zip(row.members, row.paths, strict=True):
            span = spans[member]
            heat = float(batch.temperature_S[sequence_of[span.start]]) or 1.0
            for j in batch.target_T[span].nonzero()[0].tolist():
                key = (b * length + path[j - 1], heat)
                target = (int(batch.ids_T[span.start + j]), span.start + j)
                targets.found.setdefault(key, []).append(target)
    return targets
