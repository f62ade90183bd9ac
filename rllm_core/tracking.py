"""Trackers: who is told of a run while it happens, to show or keep its numbers elsewhere.

    class Board(Tracker):
        def rllm_step_finished(self, run, step, metrics):
            self.board.log(metrics, step=step)

Calls come in order, on a thread of their own, so a slow tracker holds nobody up. One that raises
is reported, and left out of the rest of the run after its third failure; the run goes on.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from rllm_core.types import Episode

__all__ = ["Tracker"]


class Tracker:
    """Base of all trackers; `options` is an instance of the class's `Options`.

    Each method is one event hook and does nothing here. `run` is the same mapping in all of them:
    `id`, `name`, `kind` ("eval" or "train"), `directory`, `benchmark`, `model`, `harness`,
    `backend`, `algorithm`, `steps`; a key that does not apply is absent. A run that goes on
    (`--resume`) starts again with the same id and directory.

    Open files and connections in `rllm_run_started`, not in `__init__`: an object is also made
    to check its options, for `--dry-run` too.
    """

    @frozen
    class Options:
        """Options that users set under `[[trackers]]`."""

    def __init__(self, options: Any = None) -> None:
        self.options: Any = options if options is not None else self.Options()

    def rllm_run_started(self, run: Mapping[str, Any]) -> None:
        """A run has been checked and starts."""

    def rllm_episode_finished(self, run: Mapping[str, Any], episode: "Episode") -> None:
        """A rollout has ended, scored or not, of whatever phase."""

    def rllm_step_finished(
        self, run: Mapping[str, Any], step: int, metrics: Mapping[str, float]
    ) -> None:
        """Training step `step`, counted from 0, has ended; a metric may be NaN or infinite."""

    def rllm_run_finished(self, run: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """The run has ended: `status`, `reason`, `summary` (`statistics.Summary`), `events`.

        It is the last call, and comes once the run has got as far as `rllm_run_started`.
        """
