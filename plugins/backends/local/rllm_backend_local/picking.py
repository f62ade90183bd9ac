"""One token from each row's distribution.

Inverse CDF with one uniform number a row: 20 times cheaper on a CPU than `torch.multinomial`,
which draws an exponential for each vocabulary entry. The number comes from the row's own
generator, so that what a row draws does not depend on its neighbours.

The recorded logprob is that of the whole softmax at the row's temperature, also where top-k
or top-p cut the choice: it is what a trainer recomputes. At temperature 0 the most likely
token is taken, and its logprob is at temperature 1.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from rllm_core.errors import ModelError

if TYPE_CHECKING:
    import torch

__all__ = ["Choice", "pick"]


@frozen
class Choice:
    """How one row chooses."""

    temperature: float
    top_p: float
    top_k: int
    source: random.Random

    @property
    def cuts(self) -> bool:
        """Whether part of the distribution is left out."""
        return self.top_k > 0 or self.top_p < 1.0


def pick(logits_NV: "torch.Tensor", choices: Sequence[Choice]) -> "tuple[list[int], list[float]]":
    """A token id and its logprob (nats) for each row.

    `ModelError` where a row has no distribution to draw from.
    """
    import torch

    heat_N1 = torch.tensor([[c.temperature or 1.0] for c in choices])
    logp_NV = torch.log_softmax(logits_NV.float() / heat_N1, -1)
    if all(c.temperature == 0 for c in choices):
        token_N = logp_NV.argmax(-1)
    else:
        token_N = _draw(logp_NV, choices)
    chosen_N = logp_NV.gather(1, token_N[:, None])[:, 0]
    if not chosen_N.isfinite().all():
        raise _empty()
    return token_N.tolist(), chosen_N.tolist()


def _draw(logp_NV: "torch.Tensor", choices: Sequence[Choice]) -> "torch.Tensor":
    import torch

    p_NV = logp_NV.exp()
    for n, choice in enumerate(choices):
        if choice.cuts and choice.temperature > 0:
            p_NV[n] = _cut(p_NV[n], choice)
    sum_NV = p_NV.cumsum(-1)
    total_N1 = sum_NV[:, -1:]
    u_N1 = torch.tensor([[c.source.random() if c.temperature > 0 else 0.0] for c in choices])
    # Strictly below the total, so that the entry found always has mass of its own.
    at_N1 = torch.minimum(u_N1 * total_N1, torch.nextafter(total_N1, torch.zeros(())))
    token_N = torch.searchsorted(sum_NV, at_N1, right=True)[:, 0]
    greedy_N = torch.tensor([c.temperature == 0 for c in choices])
    token_N = torch.where(greedy_N, logp_NV.argmax(-1), token_N)
    if (token_N == logp_NV.shape[-1]).any():  # past the end: no entry has mass
        raise _empty()
    return token_N


def _empty() -> ModelError:
    return ModelError(
        "the model gives no token a probability: its logits are NaN, or top_p leaves none",
        remedy="after training, the weights have diverged: lower the learning rate",
    )


def _cut(p_V: "torch.Tensor", choice: Choice) -> "torch.Tensor":
    """Zero what top-k and top-p leave out (the token that reaches top-p stays in)."""
    import torch

    sorted_V, order_V = p_V.sort(descending=True)
    keep_V = torch.ones_like(p_V, dtype=torch.bool)
    if choice.top_k > 0:
        keep_V[choice.top_k :] = False
        sorted_V = sorted_V * keep_V
        sorted_V = sorted_V / sorted_V.sum()
    keep_V &= sorted_V.cumsum(-1) - sorted_V < choice.top_p
    return torch.zeros_like(p_V).scatter(0, order_V[keep_V], p_V[order_V[keep_V]])
