"""The engine: one rollout's life, and many of them at once.

A `Job` is one attempt at one task. The engine opens a gateway session for it, lets the
harness run, turns what the gateway recorded into an `Episode`, and has it scored. A bad
rollout is data: whatever fails ends in the episode's `error`, never in the run's.
"""

from rllm_core.engine.jobs import Job, Sampling
from rllm_core.engine.rollout import Rollouts

__all__ = ["Job", "Rollouts", "Sampling"]
