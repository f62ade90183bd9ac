"""JSON lines: a run as it happens, in a file that any program can follow.

Each line is written whole and at once, so that a reader never sees half of one, and whatever
kills the run leaves what was written.
"""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from attrs import field, frozen

from rllm_core import hookimpl
from rllm_core.serialize import to_json
from rllm_core.tracking import Tracker
from rllm_core.types import Episode, Failed, Missing

NAME = "tracker.jsonl"
"""The file's name in a run's directory, where the user names no other."""


def _no_directory(_: Any, attribute: Any, value: Path | None) -> None:
    if value is not None and value.is_dir():
        raise ValueError(f"'{attribute.name}' must be a file, and {value} is a directory")


class JsonLines(Tracker):
    """Writes a run's metrics and episodes to a file, one JSON object a line."""

    @frozen
    class Options:
        """Options of jsonl."""

        file: Path | None = field(
            default=None,
            validator=_no_directory,
            metadata={"doc": f"the file, appended to (default: {NAME} in the run's directory)"},
        )
        episodes: bool = field(default=True, metadata={"doc": "write a line for each episode"})
        conversations: bool = field(
            default=False, metadata={"doc": "keep each episode whole, with its messages and tokens"}
        )

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._stream: TextIO | None = None

    def rllm_run_started(self, run: Mapping[str, Any]) -> None:
        """Open the file."""
        path = self.options.file or Path(run["directory"], NAME)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._write(run, "run_started", run=dict(run))

    def rllm_episode_finished(self, run: Mapping[str, Any], episode: Episode) -> None:
        """How it went, in numbers; whole, where that is asked for."""
        if self.options.episodes:
            whole = {"whole": to_json(episode)} if self.options.conversations else {}
            self._write(run, "episode_finished", **_facts(episode), **whole)

    def rllm_step_finished(
        self, run: Mapping[str, Any], step: int, metrics: Mapping[str, float]
    ) -> None:
        """The numbers of a training step."""
        self._write(run, "step_finished", step=step, metrics=dict(metrics))

    def rllm_run_finished(self, run: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """How it ended, and close the file."""
        results = summary.get("summary")
        self._write(
            run,
            "run_finished",
            status=summary.get("status"),
            reason=summary.get("reason"),
            events=summary.get("events"),
            results=results.to_json() if results is not None else None,
        )
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _write(self, run: Mapping[str, Any], event: str, /, **facts: Any) -> None:
        if self._stream is None:
            raise RuntimeError("the run was not started, or its file could not be opened")
        line = {"event": event, "time": time.time(), "run_id": run.get("id"), **facts}
        self._stream.write(json.dumps(_plain(line), allow_nan=False) + "\n")
        self._stream.flush()


def _facts(episode: Episode) -> dict[str, Any]:
    reward = episode.reward
    steps = [step for trajectory in episode.trajectories for step in trajectory.steps]
    reason = {Missing: "reason", Failed: "error"}.get(type(reward))
    return {
        "episode": episode.id,
        "task": episode.task_id,
        "attempt": episode.attempt,
        "reward": None if reason else reward,
        "graded": getattr(reward, reason) if reason else None,
        "stop": episode.stop.value,
        "error": None if episode.error is None else episode.error.category,
        "calls": len(steps),
        "tokens": sum(step.usage.completion_tokens for step in steps),
        "seconds": episode.seconds,
    }


def _plain(value: Any) -> Any:
    """JSON data: no NaN, no infinities, keys as text; what is none is kept as its text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else str(value)


@hookimpl
def rllm_tracker() -> type[JsonLines]:
    """The tracker of this package."""
    return JsonLines
