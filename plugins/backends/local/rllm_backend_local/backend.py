"""The backend, its model and its upstream, as the core sees them."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, frozen

from rllm_backend_local.models import Place, find
from rllm_backend_local.options import Options as LocalOptions
from rllm_backend_local.process import Worker
from rllm_core.algorithms.losses import LossSpec
from rllm_core.backend import (
    Backend,
    BackendCapabilities,
    LoadedModel,
    ModelSpec,
    OptimParams,
    Outputs,
)
from rllm_core.backend.batch import TokenBatch
from rllm_core.errors import BackendError, ConfigError
from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt

__all__ = ["LocalBackend", "LocalModel", "LocalUpstream"]


@frozen
class LocalUpstream:
    """The published weights as a source of tokens.

    A later publish replaces the weights under all upstreams of the model: completions in
    flight go on with the new ones, and each piece names the version that made it.
    """

    version: int
    context_window: int
    worker: Worker

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """One completion, token by token; see `picking` for what the logprobs are."""
        async with aclosing(self.worker.stream("sample", prompt.ids.tolist(), params)) as pieces:
            async for piece in pieces:
                ids, logprobs = array("i", piece.ids), array("f", piece.logprobs)
                yield Sampled(ids, logprobs, piece.version, piece.finish)

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """Logprob (nats, temperature 1) of each id given those before it; the first is 0."""
        return array("f", await self.worker.call("score", prompt.ids.tolist()))


@define(eq=False)
class LocalModel:
    """The trainable model in the worker. Calls are sent at once and run in order."""

    spec: ModelSpec
    context_window: int
    worker: Worker

    def forward(self, batch: TokenBatch) -> Awaitable[Outputs]:
        """Per-token logprobs under the current weights; no gradients."""
        return self.worker.call("forward", batch)

    def forward_backward(self, batch: TokenBatch, loss: LossSpec) -> Awaitable[Outputs]:
        """Accumulate the gradient of `sum(weight · loss_t)`.

        Sequences without gradient are left out of the forward: their logprobs are 0, and the
        metrics are means over the targets that were computed (`trained_targets` of them).
        """
        refused = loss.needs - LocalBackend.capabilities.losses
        if refused:
            raise BackendError(f"the local backend has no loss {', '.join(sorted(refused))}")
        return self.worker.call("forward_backward", batch, loss)

    def optim_step(self, params: OptimParams) -> Awaitable[Mapping[str, float]]:
        """Apply and clear the accumulated gradients; metrics hold `grad_norm`."""
        return self.worker.call("optim_step", params)

    async def publish(self, version: int) -> LocalUpstream:
        """Let the sampler take over the current weights; the upstream of this version."""
        await self.worker.call("publish", version)
        return LocalUpstream(version, self.context_window, self.worker)

    async def save(self, directory: Path) -> None:
        """Write weights, optimizer and random states to a new directory."""
        await self.worker.call("save", str(directory))

    async def load(self, directory: Path) -> None:
        """Restore what `save` wrote; publish to let the sampler follow."""
        await self.worker.call("restore", str(directory))

    async def export(self, directory: Path) -> None:
        """Write a Hugging Face directory (mode lora: a PEFT adapter) with tokenizer files."""
        await self.worker.call("export", str(directory))


class LocalBackend(Backend):
    """Train and sample one small model on this machine's CPU, in one worker process."""

    capabilities: ClassVar[BackendCapabilities] = BackendCapabilities(
        losses=frozenset({"ppo_clip"}),
        streams=frozenset({"old"}),
        roles=frozenset({"policy"}),
        full=True,
        lora=True,
        trains=True,
        resumes=True,
    )
    Options = LocalOptions

    def __init__(self, options: LocalOptions | None = None) -> None:
        super().__init__(options)
        self._worker: Worker | None = None
        self._taken = False

    async def start(self) -> None:
        """Start the worker."""
        self._worker = await Worker.start(
            threads=self.options.threads,
            start_timeout=self.options.start_timeout,
            call_timeout=self.options.call_timeout,
        )

    async def close(self) -> None:
        """End the worker; safe to call twice, and after a failed start."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()

    async def model(self, role: str, spec: ModelSpec) -> LoadedModel:
        """Load the policy: a directory, a hub name, `smollm2-135m` or `tiny`."""
        if role not in self.capabilities.roles:
            raise ConfigError(
                f"models.{role}: the local backend serves only the role 'policy'",
                remedy=f"Give models.{role} a base_url, or leave it out.",
            )
        if self._worker is None:
            raise BackendError("the local backend is not started")
        if self._taken:
            raise ConfigError("the local backend holds one model, and has it already")
        self._taken = True
        place = await find(spec.name, self.options.call_timeout)
        facts = await self._worker.call("load", place.source(spec), self.options)
        window = facts["context_window"]
        renderer = await asyncio.to_thread(_renderer, place)
        model = LocalModel(spec, window, self._worker)
        return LoadedModel(model, renderer, window, self._learning_rate(spec.name))

    def _learning_rate(self, name: str) -> float:
        """What trains without tuning: measured on `tiny` and on `smollm2-135m`."""
        if name == "tiny":
            return 3e-3
        return 3e-4 if self.options.mode == "lora" else 1e-5


def _renderer(place: Place) -> Any:
    from rllm_core.gateway.renderers import load_renderer

    name, directory = place.renderer
    return load_renderer(name, directory=directory)
