"""A backend that really learns, in numpy, in milliseconds: for tests of everything around it.

The model is a table of logits θ[first prompt token, next token]: enough to learn "copy the
digit" or "add one", small enough that a whole training run takes less than a second. It
keeps the contract of `rllm_core.backend` in full: queued calls, publish, save, load, export.
"""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from rllm_core.algorithms.losses import LossSpec, PPOClip
from rllm_core.backend import (
    Backend,
    BackendCapabilities,
    LoadedModel,
    ModelSpec,
    OptimParams,
    Outputs,
)
from rllm_core.backend.batch import TokenBatch
from rllm_core.errors import BackendError
from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt, Upstream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TableBackend"]

VOCABULARY = 16
WINDOW = 64


def _log_softmax(logits: "NDArray[np.float64]") -> "NDArray[np.float64]":
    import numpy as np

    shifted = logits - logits.max(axis=-1, keepdims=True)
    scaled: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return scaled


@frozen
class TableUpstream:
    """Samples from a copy of the table."""

    table: "NDArray[np.float64]" = field(repr=False)
    version: int
    delay: float = 0.0
    context_window: int = WINDOW

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """One piece of at most `max_tokens` tokens, ended by a stop token."""
        import numpy as np

        await asyncio.sleep(self.delay)
        logits = self.table[prompt.ids[0]] / (params.temperature or 1.0)
        logprobs = _log_softmax(logits)
        random = np.random.default_rng(params.seed)
        ids, chosen = array("i"), array("f")
        while len(ids) < params.max_tokens:
            greedy = params.temperature == 0
            token = int(
                logprobs.argmax() if greedy else random.choice(VOCABULARY, p=np.exp(logprobs))
            )
            ids.append(token)
            chosen.append(float(logprobs[token]))
            if token in params.stop_token_ids:
                break
        finish = "stop" if ids[-1] in params.stop_token_ids else "length"
        yield Sampled(ids, chosen, self.version, finish)

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """Logprobs of the prompt's own ids."""
        logprobs = _log_softmax(self.table[prompt.ids[0]])
        return array("f", [0.0, *(float(logprobs[i]) for i in prompt.ids[1:])])


@define
class TableModel:
    """The table, its gradient, and plain gradient descent."""

    spec: ModelSpec
    delay: float = 0.0
    table: "NDArray[np.float64]" = field(init=False, repr=False)
    gradient: "NDArray[np.float64]" = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        import numpy as np

        self.table = np.zeros((VOCABULARY, VOCABULARY))
        self.gradient = np.zeros_like(self.table)

    def forward(self, batch: TokenBatch) -> Awaitable[Outputs]:
        """Logprobs of every target."""
        return asyncio.ensure_future(self._forward(batch, None))

    def forward_backward(self, batch: TokenBatch, loss: LossSpec) -> Awaitable[Outputs]:
        """Adds to the gradient."""
        return asyncio.ensure_future(self._forward(batch, loss))

    async def _forward(self, batch: TokenBatch, loss: LossSpec | None) -> Outputs:
        import numpy as np

        logprobs_T = np.zeros(batch.tokens, np.float32)
        gradient = np.zeros_like(self.gradient)
        total = 0.0
        for span, temperature in zip(batch.spans(), batch.temperature_S, strict=True):
            first = batch.ids_T[span][0]
            table = _log_softmax(self.table[first] / temperature)
            for at in np.flatnonzero(batch.target_T[span]) + span.start:
                token = batch.ids_T[at]
                logprobs_T[at] = table[token]
                if loss is not None:
                    term, slope = _ppo(loss, table[token], batch, at)
                    total += batch.weight_T[at] * term
                    onehot = np.eye(VOCABULARY)[token]
                    change = batch.weight_T[at] * slope / temperature
                    gradient[first] += change * (onehot - np.exp(table))
        if not np.isfinite(total):
            raise BackendError(f"the loss is not finite: {total}")
        self.gradient += gradient
        return Outputs(logprobs_T, total, {})

    def optim_step(self, params: OptimParams) -> Awaitable[Mapping[str, float]]:
        """θ ← θ − lr · gradient."""
        return asyncio.ensure_future(self._optim_step(params))

    async def _optim_step(self, params: OptimParams) -> Mapping[str, float]:
        import numpy as np

        norm = float(np.linalg.norm(self.gradient))
        self.table = self.table - params.learning_rate * self.gradient
        self.gradient = np.zeros_like(self.table)
        return {"grad_norm": norm}

    async def publish(self, version: int) -> Upstream:
        """A sampler over a copy of the table."""
        return TableUpstream(self.table.copy(), version, self.delay)

    async def save(self, directory: Path) -> None:
        """The table as JSON."""
        directory.mkdir(parents=True)  # noqa: ASYNC240 - a kilobyte, in a test
        (directory / "table.json").write_text(json.dumps(self.table.tolist()))

    async def load(self, directory: Path) -> None:
        """The table that `save` wrote."""
        import numpy as np

        self.table = np.array(json.loads((directory / "table.json").read_text()))

    async def export(self, directory: Path) -> None:
        """The same as `save`."""
        await self.save(directory)


def _ppo(loss: LossSpec, logprob: float, batch: TokenBatch, at: int) -> tuple[float, float]:
    """The clipped surrogate of one token and its derivative by the logprob."""
    import numpy as np

    clip = loss.policy
    if not isinstance(clip, PPOClip):
        raise BackendError(f"the table backend honours ppo_clip, not {clip.name}")
    advantage = float(batch.advantage_T[at])
    ratio = float(np.exp(logprob - batch.logprobs_T[at]))
    clipped = min(max(ratio, 1 - clip.low), 1 + clip.high)
    free = ratio * advantage <= clipped * advantage
    return -min(ratio * advantage, clipped * advantage), -ratio * advantage if free else 0.0


class TableBackend(Backend):
    """Models in this process; `delay` is how long (seconds) a sample takes."""

    capabilities = BackendCapabilities(losses=frozenset({"ppo_clip"}))

    @frozen
    class Options:
        """Options of the table backend."""

        delay: float = field(default=0.0, metadata={"doc": "seconds that a sample takes"})

    async def model(self, role: str, spec: ModelSpec) -> LoadedModel:
        """A table of zeros, or one that was exported, rendered character by character."""
        from rllm_core.gateway.renderers import CharRenderer

        if role != "policy":
            raise ValueError(f"the table backend has no role {role!r}")
        model = TableModel(spec, self.options.delay)
        if Path(spec.name).is_dir():  # noqa: ASYNC240 - a kilobyte, in a test
            await model.load(Path(spec.name))
        return LoadedModel(model, CharRenderer(), WINDOW, learning_rate=4.0)
