"""What watches a run: the display of a command, trackers, or nobody."""

from collections.abc import Mapping
from typing import Any

from rllm_core.types import Episode

__all__ = ["Observer"]


class Observer:
    """Told of everything that happens, in order; this one looks away."""

    def run_started(self, run: Mapping[str, Any]) -> None:
        """A run has been checked and starts; `run` holds what its header shows."""

    def phase_started(self, name: str, total: int, done: int = 0) -> None:
        """A set of rollouts begins; `done` of `total` were finished by an earlier process."""

    def episode_finished(self, phase: str, episode: Episode) -> None:
        """A rollout has ended."""

    def phase_finished(self, name: str, summary: Any) -> None:
        """All rollouts of a phase have ended; `summary` is a `statistics.Summary`."""

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """A training step has ended."""

    def note(self, message: str) -> None:
        """Something that a person should see while it happens: a download, a retry."""

    def run_finished(self, outcome: Mapping[str, Any]) -> None:
        """The run has ended, in whatever way."""
