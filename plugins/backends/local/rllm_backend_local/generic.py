"""The plain sampling engine, for causal language models of any architecture.

Each row has a Hugging Face cache of its own and is decoded by the model's own forward:
correct wherever transformers is, and slower than `llama` by the batching that it lacks.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

__all__ = ["GenericEngine"]


class GenericEngine:
    """The same interface as `llama.LlamaEngine`, over `model.forward`."""

    def __init__(self, model: Any, dtype: torch.dtype, budget: int) -> None:
        self.source, self.budget = model, budget
        self.copy = copy.deepcopy(model).to(dtype).requires_grad_(requires_grad=False).eval()
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        names = inspect.signature(base.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        c = model.config.get_text_config()
        heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
        size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        self.token_bytes = 2 * c.num_hidden_layers * heads * size * dtype.itemsize
        self.caches: list[Any] = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the trainer's weights; live rows go on with them."""
        fresh = dict(self.source.named_parameters())
        for name, parameter in self.copy.named_parameters():
            parameter.copy_(fresh[name])

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether that many rows of up to that many tokens stay within the cache's budget."""
        return bool(rows * tokens * self.token_bytes <= self.budget)

    @torch.inference_mode()
    def admit(self, prompts: Sequence[Sequence[int]], reserve: int) -> Tensor:  # noqa: ARG002
        """Prefill new rows after the live ones; logits of each end."""
        made: dict[tuple[int, ...], tuple[Any, Tensor]] = {}
        logits = []
        for prompt in map(tuple, prompts):
            if prompt not in made:
                cache = DynamicCache(config=self.source.config)
                made[prompt] = cache, self._forward(prompt, cache)
            self.caches.append(copy.deepcopy(made[prompt][0]))
            logits.append(made[prompt][1])
        return torch.stack(logits)

    @torch.inference_mode()
    def decode(self, tokens: Sequence[int]) -> Tensor:
        """Append one token to each live row; logits of the next."""
        logits = []
        for token, cache in zip(tokens, self.caches, strict=True):
            logits.append(self._forward([token], cache))
        return torch.stack(logits)

    def _forward(self, ids: Sequence[int], cache: Any) -> Tensor:
        known = {self.cache_name: cache, "use_cache": True}
        logits: Tensor = self.copy(input_ids=torch.tensor([list(ids)]), **known).logits
        return logits[0, -1]

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all live rows but these."""
        self.caches = [self.caches[row] for row in rows]

    @torch.inference_mode()
    def score(self, ids: Sequence[int]) -> list[float]:
        """The logprob of each id given those before it; the first is 0."""
        whole = torch.tensor([list(ids)])
        logp = torch.log_softmax(self.copy(input_ids=whole).logits[0, :-1].float(), -1)
        return [0.0, *logp.gather(1, whole[0, 1:, None])[:, 0].tolist()]
