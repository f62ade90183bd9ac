"""The batch that a trainer sees: flat arrays plus offsets, nothing padded.

Axes are named as in `ids_T`: T runs over all tokens of all sequences, S over sequences;
sequence s is `ids_T[offsets_S1[s]:offsets_S1[s + 1]]`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import Factory, frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TokenBatch"]


@frozen(eq=False)
class TokenBatch:
    """Sequences to train on.

    - `ids_T` int32: the tokens.
    - `offsets_S1` int64: where each sequence starts; the last entry is T.
    - `target_T` bool: sampled tokens whose prediction is trained (never the first of a
      sequence: there is nothing to predict it from).
    - `logprobs_T` float32: logprob at sampling time, at `temperature_S`; 0 off target.
    - `weight_T` float32: the loss weight of each target; aggregation is already in it.
    - `advantage_T` float32: the policy-gradient credit; 0 off target.
    - `streams`: optional per-token float32 arrays by name: "cross_entropy_weight",
      "kl_weight", "old", "reference", "teacher", "values".
    - `group_S` int32: sequences of one group share a prompt and may be packed.
    - `temperature_S` float32: what the sequence was sampled at.
    - `version_S2` int32: lowest and highest weight version among the targets.
    - `names_S`: which episode, trajectory and branch each sequence is.
    """

    ids_T: "NDArray[np.int32]"
    offsets_S1: "NDArray[np.int64]"
    target_T: "NDArray[np.bool_]"
    logprobs_T: "NDArray[np.float32]"
    weight_T: "NDArray[np.float32]"
    advantage_T: "NDArray[np.float32]"
    group_S: "NDArray[np.int32]"
    temperature_S: "NDArray[np.float32]"
    version_S2: "NDArray[np.int32]"
    names_S: tuple[str, ...]
    streams: "Mapping[str, NDArray[np.float32]]" = Factory(dict)

    def __len__(self) -> int:
        return len(self.offsets_S1) - 1

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return len(self.ids_T)

    @property
    def targets(self) -> int:
        """How many of them are trained on."""
        return int(self.target_T.sum())

    def spans(self) -> Iterator[slice]:
        """The slice of each sequence."""
        return (
            slice(int(a), int(b))
            for a, b in zip(self.offsets_S1[:-1], self.offsets_S1[1:], strict=True)
        )
