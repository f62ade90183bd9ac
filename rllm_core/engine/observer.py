"""What watches a run: the display of a command, trackers, or nobody."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rllm_core.types import Episode

if TYPE_CHECKING:
    from rllm_core.plugins.events import Events

__all__ = ["Observer", "Tracked"]


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


class Tracked(Observer):
    """An observer, and beside it the event hooks of a run's trackers.

    Hooks get the run's facts (`run_started`'s mapping) as `run`; it is empty before.
    """

    def __init__(self, inner: Observer, events: "Events") -> None:
        self._inner = inner
        self._events = events
        self.run: Mapping[str, Any] = {}

    def run_started(self, run: Mapping[str, Any]) -> None:
        """`rllm_run_started`."""
        self.run = run
        self._inner.run_started(run)
        self._events.call("rllm_run_started", run=run)

    def phase_started(self, name: str, total: int, done: int = 0) -> None:
        """No hook."""
        self._inner.phase_started(name, total, done)

    def episode_finished(self, phase: str, episode: Episode) -> None:
        """`rllm_episode_finished`."""
        self._inner.episode_finished(phase, episode)
        self._events.call("rllm_episode_finished", run=self.run, episode=episode)

    def phase_finished(self, name: str, summary: Any) -> None:
        """No hook."""
        self._inner.phase_finished(name, summary)

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """`rllm_step_finished`."""
        self._inner.step_finished(step, metrics)
        self._events.call("rllm_step_finished", run=self.run, step=step, metrics=dict(metrics))

    def note(self, message: str) -> None:
        """No hook."""
        self._inner.note(message)

    def run_finished(self, outcome: Mapping[str, Any]) -> None:
        """`rllm_run_finished`."""
        self._inner.run_finished(outcome)
        self._events.call("rllm_run_finished", run=self.run, summary=dict(outcome))
