"""Losses, each once, in torch: per-token terms of `sum(weight · loss_t)`.

A loss is a frozen description with a `name` (what backends declare and hosted services map)
and a `terms` method over torch tensors, which only the worker that trains calls; importing
this module does not import torch.

Notation: lp = logprob under the weights being trained, old = logprob at sampling time,
r = exp(lp − old), A = advantage; all per target token.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AGGREGATIONS", "LossSpec", "PPOClip", "PolicyLoss"]

AGGREGATIONS = ("token-mean", "sequence-mean", "token-sum")
"""How tokens may be weighted against each other; see `LossSpec`."""


class PolicyLoss:
    """One policy-gradient loss."""

    name: ClassVar[str]

    def terms(self, lp: "Tensor", old: "Tensor", advantage: "Tensor") -> "Tensor":
        """The loss of each target token, to be minimised; shapes are all [targets]."""
        raise NotImplementedError

    def metrics(self, lp: "Tensor", old: "Tensor") -> "Mapping[str, Tensor]":
        """Per-token diagnostics (shape [targets]), averaged over targets by the trainer."""
        ratio = (lp - old).exp()
        return {"abs_logprob_gap": (lp - old).abs(), "ratio": ratio}


@frozen
class PPOClip(PolicyLoss):
    """−min(r·A, clip(r, 1 − low, 1 + high)·A)   (Schulman et al. 2017, arXiv:1707.06347).

    `high` above `low` is DAPO's clip-higher (arXiv:2503.14476).
    """

    low: float = 0.2
    high: float = 0.2
    name: ClassVar[str] = "ppo_clip"

    def terms(self, lp: "Tensor", old: "Tensor", advantage: "Tensor") -> "Tensor":
        """The clipped surrogate."""
        import torch

        ratio = (lp - old).exp()
        clipped = ratio.clamp(1 - self.low, 1 + self.high)
        return -torch.minimum(ratio * advantage, clipped * advantage)

    def metrics(self, lp: "Tensor", old: "Tensor") -> "Mapping[str, Tensor]":
        """Adds the share of tokens outside the clip range."""
        ratio = (lp - old).exp()
        outside = (ratio < 1 - self.low) | (ratio > 1 + self.high)
        return {**super().metrics(lp, old), "clip_share": outside.to(lp.dtype)}


@frozen
class LossSpec:
    """Which loss a batch's streams feed, and how tokens are weighted against each other.

    `aggregation` is "token-mean" (every target of the batch counts the same),
    "sequence-mean" (every sequence the same, its tokens sharing), or "token-sum".
    The core turns it into `TokenBatch.weight_T` before the first forward.
    """

    policy: PolicyLoss = field(factory=PPOClip)
    aggregation: str = "token-mean"

    @property
    def needs(self) -> frozenset[str]:
        """Names of the losses that the backend must honour."""
        return frozenset({self.policy.name})
