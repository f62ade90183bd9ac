"""From groups and credit to the batch that a backend trains on.

Aggregation becomes a per-token weight here, once, before the first forward; every backend
then minimises the plain sum `weight · loss_t`. With N targets in the batch and S sequences:

    token-mean      1 / N             every token counts the same
    sequence-mean   1 / (S · n_s)     every sequence counts the same, its n_s tokens share
    token-sum       1

N and S count the sequences whose credit is zero too, although those are left out of the
forward: dropping what carries no gradient must not change the size of the step.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rllm_core.algorithms import Credit
from rllm_core.algorithms.losses import AGGREGATIONS
from rllm_core.backend.batch import TokenBatch
from rllm_core.errors import ConfigError
from rllm_core.training.sequences import Sequence as TokenSequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["build_batch"]


def build_batch(
    sequences: Sequence[TokenSequence],
    credit: Mapping[tuple[str, str], Credit],
    groups: Mapping[str, int],
    aggregation: str,
) -> TokenBatch:
    """Sequences with a non-zero credit, as flat arrays.

    `credit` is keyed by (episode, trajectory), `groups` maps an episode to the number of its
    group. Sequences of members without credit (ungraded) are left out altogether.
    """
    import numpy as np

    credited = [s for s in sequences if (s.episode, s.trajectory) in credit]
    weights = _weights([s.targets for s in credited], aggregation)
    advantages = [credit[s.episode, s.trajectory].advantage for s in credited]
    kept = [(s, w, a) for s, w, a in zip(credited, weights, advantages, strict=True) if a != 0.0]
    lengths = [len(s.ids) for s, _, _ in kept]
    target_T = _flat([np.frombuffer(bytes(s.target), np.bool_) for s, _, _ in kept], np.bool_)
    return TokenBatch(
        ids_T=_flat([np.array(s.ids, np.int32) for s, _, _ in kept], np.int32),
        offsets_S1=np.cumsum([0, *lengths], dtype=np.int64),
        target_T=target_T,
        logprobs_T=_flat([np.array(s.logprobs, np.float32) for s, _, _ in kept], np.float32),
        weight_T=_spread([w for _, w, _ in kept], lengths) * target_T,
        advantage_T=_spread([a for _, _, a in kept], lengths) * target_T,
        group_S=np.array([groups[s.episode] for s, _, _ in kept], np.int32),
        temperature_S=np.array([s.temperature for s, _, _ in kept], np.float32),
        version_S2=np.array([s.versions for s, _, _ in kept], np.int32).reshape(-1, 2),
        names_S=tuple(s.name for s, _, _ in kept),
    )


def _weights(targets: list[int], aggregation: str) -> list[float]:
    if aggregation == "token-mean":
        total = sum(targets)
        return [1.0 / total for _ in targets]
    if aggregation == "sequence-mean":
        return [1.0 / (len(targets) * n) for n in targets]
    if aggregation == "token-sum":
        return [1.0 for _ in targets]
    raise ConfigError(
        f"algorithm.aggregation: unknown mode {aggregation!r}",
        remedy=f"choose one of {', '.join(AGGREGATIONS)}",
    )


def _flat(parts: "list[NDArray[Any]]", dtype: type) -> "NDArray[Any]":
    import numpy as np

    return np.concatenate([*parts, np.zeros(0, dtype)]).astype(dtype)


def _spread(values: list[float], lengths: list[int]) -> "NDArray[np.float32]":
    import numpy as np

    return np.repeat(np.array(values, np.float32), np.array(lengths, np.int64))
