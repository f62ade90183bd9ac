"""rLLM: evaluate and train any language agent. What users import in their own code."""

from rllm_core import __version__
from rllm_core.types import Episode, Missing, Score, Step, Task, Tool, Trajectory

__all__ = ["Episode", "Missing", "Score", "Step", "Task", "Tool", "Trajectory", "__version__"]
