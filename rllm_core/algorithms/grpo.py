"""GRPO (Shao et al. 2024, arXiv:2402.03300): credit is the reward, standardised in its group.

    A_i = (r_i − mean r) / (std r + ε),   broadcast over the sampled tokens of trajectory i

The standard deviation is the population's (ddof 0) unless `ddof` says otherwise. A group of
one, or one without spread, has zero credit: there is nothing to compare.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from rllm_core.algorithms import Algorithm, Credit, TrajectoryGroup, per_group
from rllm_core.algorithms.losses import LossSpec, PPOClip
from rllm_core.hookspecs import hookimpl

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GRPO"]

EPSILON = 1e-6


class GRPO(Algorithm):
    """Group-relative policy optimisation."""

    min_group = 2

    @frozen
    class Options:
        """Options of grpo."""

        clip_low: float = field(default=0.2, metadata={"doc": "the ratio may fall by this much"})
        clip_high: float = field(
            default=0.28, metadata={"doc": "the ratio may rise by this much (DAPO: 0.28)"}
        )
        standardize: bool = field(
            default=True,
            metadata={"doc": "divide by the group's standard deviation (false: Dr. GRPO)"},
        )
        ddof: int = field(
            default=0, metadata={"doc": "0: the population's deviation; 1: the sample's"}
        )
        aggregation: str = field(
            default="token-mean",
            metadata={"doc": "token-mean, sequence-mean or token-sum"},
        )

    @property
    def loss(self) -> LossSpec:
        """PPO's clipped surrogate over the rollout's own logprobs."""
        clip = PPOClip(self.options.clip_low, self.options.clip_high)
        return LossSpec(policy=clip, aggregation=self.options.aggregation)

    def credit(self, batch: Sequence[TrajectoryGroup]) -> list[Credit]:
        """Standardised rewards."""
        return per_group(batch, self.advantage)

    def advantage(self, rewards_G: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """Rewards of one group → advantages."""
        centered_G: NDArray[np.float64] = rewards_G - rewards_G.mean()
        # Equal rewards are compared as they are: centred ones may differ by a rounding error.
        if len(rewards_G) <= self.options.ddof or rewards_G.min() == rewards_G.max():
            centered_G *= 0.0
        elif self.options.standardize:
            centered_G /= rewards_G.std(ddof=self.options.ddof) + EPSILON
        return centered_G


@hookimpl
def rllm_algorithm() -> type[GRPO]:
    """The class behind `--algorithm grpo`."""
    return GRPO
