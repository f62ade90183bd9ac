"""In the worker: a model's weights, its adapters, its sampling engine, its memory."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen

from rllm_backend_local import tiny
from rllm_backend_local.generic import GenericEngine
from rllm_backend_local.llama import LlamaEngine, is_llama
from rllm_backend_local.memory import plan_memory
from rllm_backend_local.models import Source
from rllm_backend_local.options import Options
from rllm_backend_local.sampler import Engine
from rllm_core.errors import ConfigError

__all__ = ["Loaded", "load"]

_SMALL = 10_000_000
"""Below this many parameters bf16 gains nothing: such models are always fp32."""


@frozen
class Loaded:
    """A model ready to train and to sample."""

    source: Source
    model: Any
    base: Any
    engine: Engine
    bf16: bool
    packs: bool
    context: int
    stops: frozenset[int]
    log: str


def load(source: Source, options: Options) -> Loaded:
    """Read the weights; `ConfigError` where name, options or memory do not allow it."""
    base = tiny.make(options.seed) if source.path is None else _read(source)
    if source.adapter is not None:
        base = _merged(base, source.adapter)
    base.requires_grad_(requires_grad=True).float()
    count = sum(p.numel() for p in base.parameters())
    bf16 = _bf16(options.dtype, count, source.name)
    model = _adapted(base, options) if options.mode == "lora" else base
    _ready_for_training(model, options)
    fast = is_llama(base.config)
    context = _context(base.config, source)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    budget, log = plan_memory(count, trained, bf16=bf16)
    dtype = torch.bfloat16 if bf16 else torch.float32
    engine: Engine = (
        LlamaEngine(base, dtype, context, budget, steady=count < _SMALL)
        if fast
        else GenericEngine(model, dtype, budget)
    )
    return Loaded(
        source, model, base, engine, bf16, fast, context, _stops(base), f"{source.name}: {log}"
    )


def _read(source: Source) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"models.policy.name: cannot load {source.name!r}: {error}",
            remedy="Give a directory with config.json and safetensors, a model that is in the "
            "Hugging Face cache (or reachable on the hub), 'smollm2-135m' or 'tiny'.",
        ) from error


def _merged(base: Any, adapter: str) -> Any:
    """The model with a trained adapter in its weights (in fp32, so that nothing is rounded)."""
    from peft import PeftModel

    with _quiet_peft():
        return PeftModel.from_pretrained(base, adapter).merge_and_unload()


def _bf16(asked: str, count: int, name: str) -> bool:
    if count < _SMALL:
        if asked == "bf16":
            raise ConfigError(
                f"backend.dtype: {name!r} has {count:,} parameters and is computed in fp32",
                remedy="Leave backend.dtype out, or set it to 'fp32'.",
            )
        return False
    return _bf16_is_faster() if asked == "auto" else asked == "bf16"


def _bf16_is_faster() -> bool:
    """Time two products: CPUs without bf16 units emulate it slowly."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.randn(256, 1024).to(dtype)
        b = torch.randn(1024, 1024).to(dtype)
        a @ b
        start = time.perf_counter()
        for _ in range(3):
            a @ b
        seconds[dtype] = time.perf_counter() - start
    return seconds[torch.bfloat16] < 0.8 * seconds[torch.float32]


def _adapted(base: Any, options: Options) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(options.seed)
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with _quiet_peft():
        return get_peft_model(base, config)


@contextmanager
def _quiet_peft() -> Iterator[None]:
    """Peft reads an attribute that transformers is about to rename."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        yield


def _ready_for_training(model: Any, options: Options) -> None:
    """Training mode (checkpointing needs it) without dropout: train equals sample."""
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    if options.gradient_checkpointing:
        # transformers is renaming it; both names take the same settings
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def _context(config: Any, source: Source) -> int:
    longest: int = getattr(config.get_text_config(), "max_position_embeddings", 0) or 4096
    if source.context_window is not None and source.context_window > longest:
        raise ConfigError(
            f"models.policy.context_window: {source.name!r} has {longest} positions, "
            f"not {source.context_window}",
            remedy=f"Set it to at most {longest}, or leave it out.",
        )
    return source.context_window or longest


def _stops(base: Any) -> frozenset[int]:
    ends = base.generation_config.eos_token_id if base.generation_config else None
    ends = base.config.eos_token_id if ends is None else ends
    if ends is None:
        return frozenset()
    return frozenset(ends if isinstance(ends, list) else [ends])
