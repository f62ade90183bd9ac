"""Training backends: what turns credit into new weights.

A `Backend` owns a process, a cluster or a service session. It hands out `Model`s, whose
methods have the shape of the Tinker API: calls are queued in order and awaited when wanted.
The trainer is blind to the algorithm: it sees a `TokenBatch` of flat arrays and a
`LossSpec`, and minimises `sum(weight · loss_t)` without averaging anything itself.
"""

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from attrs import Factory, field, frozen

from rllm_core.upstream import Upstream

if TYPE_CHECKING:
    from rllm_core.algorithms.losses import LossSpec
    from rllm_core.backend.batch import TokenBatch

__all__ = [
    "Backend",
    "BackendCapabilities",
    "LoadedModel",
    "Model",
    "ModelSpec",
    "OptimParams",
    "Outputs",
]


@frozen
class BackendCapabilities:
    """What a backend honours; a run that needs more is refused before it starts."""

    losses: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset({"policy"})
    full: bool = True
    lora: bool = False
    trains: bool = True
    resumes: bool = True


@frozen
class ModelSpec:
    """Which model a role uses, as the user named it."""

    name: str
    context_window: int | None = None


@frozen
class OptimParams:
    """One optimizer step (AdamW). `grad_clip` is the largest global gradient norm."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0


@frozen
class Outputs:
    """What a forward gives back.

    `logprobs` are float32, aligned with the batch's ids, 0 where there is no target; `loss`
    is the weighted sum; `metrics` are means over targets (clip share, |Δ logprob|, …).
    """

    logprobs: Any
    loss: float = 0.0
    metrics: Mapping[str, float] = Factory(dict)


class Model(Protocol):
    """A trainable model, living in its backend."""

    spec: ModelSpec

    def forward(self, batch: "TokenBatch") -> Awaitable[Outputs]:
        """Per-token logprobs under the current weights; no gradients."""
        ...

    def forward_backward(self, batch: "TokenBatch", loss: "LossSpec") -> Awaitable[Outputs]:
        """Accumulate the gradient of `sum(weight · loss_t)`."""
        ...

    def optim_step(self, params: OptimParams) -> Awaitable[Mapping[str, float]]:
        """Apply and clear the accumulated gradients; metrics hold `grad_norm`."""
        ...

    async def publish(self, version: int) -> Upstream:
        """The current weights as an upstream that samples at this version."""
        ...

    async def save(self, directory: Path) -> None:
        """Write weights, optimizer and random states to a new directory."""
        ...

    async def load(self, directory: Path) -> None:
        """Restore what `save` wrote."""
        ...

    async def export(self, directory: Path) -> None:
        """Write the weights for others: a Hugging Face directory (or a PEFT adapter)."""
        ...


@frozen
class LoadedModel:
    """What a backend hands out for a role: the model, and how its tokens are rendered.

    `learning_rate` is what a run uses when its user names none.
    """

    model: Model
    renderer: Any = field(repr=False)
    context_window: int
    learning_rate: float = 1e-5


class Backend:
    """Base of all backends. `options` is an instance of the class's `Options`."""

    capabilities: ClassVar[BackendCapabilities] = BackendCapabilities()

    @frozen
    class Options:
        """Options that users set under `[backend]`."""

    def __init__(self, options: Any = None) -> None:
        self.options: Any = options if options is not None else self.Options()

    async def start(self) -> None:
        """Start the process, cluster or session."""

    async def close(self) -> None:
        """End it; safe to call twice, and after a failed start."""

    async def model(self, role: str, spec: ModelSpec) -> LoadedModel:
        """Load the model of a role."""
        raise NotImplementedError
