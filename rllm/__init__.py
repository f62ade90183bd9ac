"""rLLM: evaluate and train any language agent. What users import in their own code.

The decorators are imported on first use, so that `import rllm` stays cheap.
"""

from typing import TYPE_CHECKING, Any

from rllm_core import __version__
from rllm_core.types import Episode, Missing, Score, Step, Task, Tool, Trajectory

if TYPE_CHECKING:
    from rllm.running import evaluate, train
    from rllm_core.harness.functions import rollout
    from rllm_core.scoring import evaluator

__all__ = [
    "Episode",
    "Missing",
    "Score",
    "Step",
    "Task",
    "Tool",
    "Trajectory",
    "__version__",
    "evaluate",
    "evaluator",
    "rollout",
    "train",
]

_LAZY = {
    "evaluate": "rllm.running",
    "evaluator": "rllm_core.scoring",
    "rollout": "rllm_core.harness.functions",
    "train": "rllm.running",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'rllm' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
