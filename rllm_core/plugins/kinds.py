"""What a plugin of each kind must be: the base class that its hook's answer extends."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["BASES", "has_options", "load_base"]

BASES: Mapping[str, str] = MappingProxyType(
    {
        "harness": "rllm_core.harness:Harness",
        "backend": "rllm_core.backend:Backend",
        "benchmark": "rllm_core.benchmark:Benchmark",
        "algorithm": "rllm_core.algorithms:Algorithm",
        "tracker": "rllm_core.tracking:Tracker",
        "command": "click:Command",
    }
)
"""Kind → `module:class`. Kinds that are protocols (sandboxes, samplers) have none."""


def load_base(kind: str) -> type | None:
    """The base class of a kind, imported on use."""
    import importlib

    reference = BASES.get(kind)
    if reference is None:
        return None
    module, _, name = reference.partition(":")
    base: type = getattr(importlib.import_module(module), name)
    return base


def has_options(kind: str) -> bool:
    """Whether plugins of this kind carry an attrs `Options` class."""
    return kind != "command"
