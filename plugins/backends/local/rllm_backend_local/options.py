"""What users set under `[backend]` when `use = "local"`."""

from attrs import field, frozen, validators

from rllm_core.backend import Backend
from rllm_core.errors import ConfigError

__all__ = ["Options"]


@frozen
class Options(Backend.Options):
    """Options of the local backend. An option that cannot take effect is a `ConfigError`."""

    mode: str = field(
        default="full",
        validator=validators.in_(("full", "lora")),
        metadata={"doc": "what is trained: every weight (full) or low-rank adapters (lora)"},
    )
    lora_rank: int | None = field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"doc": "rank of the adapters; only with mode lora (left out: 16)"},
    )
    lora_alpha: float | None = field(
        default=None,
        validator=validators.optional(validators.gt(0)),
        metadata={"doc": "scale of the adapters; only with mode lora (left out: twice the rank)"},
    )
    dtype: str = field(
        default="auto",
        validator=validators.in_(("auto", "bf16", "fp32")),
        metadata={"doc": "compute type; auto measures once which is faster, tiny is always fp32"},
    )
    threads: int = field(
        default=0,
        validator=validators.ge(0),
        metadata={"doc": "compute threads; 0 means every core that the process may use"},
    )
    micro_tokens: int = field(
        default=2048,
        validator=validators.ge(1),
        metadata={"doc": "most padded tokens in one backward pass; lower it to save memory"},
    )
    gradient_checkpointing: bool = field(
        default=False,
        metadata={"doc": "recompute activations in the backward pass: less memory, 5 % slower"},
    )
    max_rows: int = field(
        default=128,
        validator=validators.ge(1),
        metadata={"doc": "most completions sampled at the same time"},
    )
    seed: int = field(
        default=0,
        metadata={"doc": "seed of random initial weights, and of samples that bring none"},
    )
    start_timeout: float = field(
        default=300.0,
        validator=validators.gt(0),
        metadata={"doc": "seconds that the worker process may take to start"},
    )
    call_timeout: float = field(
        default=1800.0,
        validator=validators.gt(0),
        metadata={"doc": "seconds that one call (a batch, the next token) may take"},
    )

    def __attrs_post_init__(self) -> None:
        if self.mode == "full":
            for name in ("lora_rank", "lora_alpha"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"backend.{name}: has no effect with backend.mode = 'full'",
                        remedy=f"Set backend.mode = 'lora', or leave backend.{name} out.",
                    )

    @property
    def rank(self) -> int:
        """The adapters' rank."""
        return 16 if self.lora_rank is None else self.lora_rank

    @property
    def alpha(self) -> float:
        """The adapters' scale."""
        return 2.0 * self.rank if self.lora_alpha is None else self.lora_alpha
