"""GRPO (Shao et al. 2024, arXiv:2402.03300): credit is the reward, standardised in its group.

    A_i = (r_i − mean r) / (std r + ε),   broadcast over the sampled tokens of trajectory i

The standard deviation is the population's (ddof 0) unless `ddof` says otherwise. A group of
one, or one without spread, has zero credit: there is nothing to compare.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rllm_core.algorithms import Algorithm, Credit, TrajectoryGroup, per_group
from rllm_core.algorithms.losses import AGGREGATIONS, LossSpec, PPOClip
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

        @clip_low.validator
        def _check_low(self, _: Any, value: float) -> None:
            if not 0 < value < 1:
                raise ValueError(f"'clip_low' must be above 0 and below 1, not {value}")

        @clip_high.validator
        def _check_high(self, _: Any, value: float) -> None:
            if not 0 < value < math.inf:
                raise ValueError(f"'clip_high' must be a finite number above 0, not {value}")

        @ddof.validator
        def _check_ddof(self, _: Any, value: int) -> None:
            if value not in (0, 1):
                raise ValueError(f"'ddof' must be 0 or 1, not {value}")

        @aggregation.validator
        def _check_aggregation(self, _: Any, value: str) -> None:
            if value not in AGGREGATIONS:
                known = ", ".join(AGGREGATIONS)
                raise ValueError(f"'aggregation' must be one of {known}, not {value!r}")

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
