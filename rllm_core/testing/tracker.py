"""What every tracker must keep to, as tests: subclass `TrackerConformance`.

A tracker is a guest of the run: it takes whatever a run can hold, in the run's own way of calling
it, says what it has seen, and leaves the process as it was.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from rllm_core.plugins.events import Events
from rllm_core.statistics import summarize
from rllm_core.tracking import Tracker
from rllm_core.types import (
    Episode,
    ErrorRecord,
    Failed,
    Missing,
    Score,
    Step,
    Stop,
    Trajectory,
    Usage,
)

__all__ = ["TrackerConformance", "episodes_of_all_kinds"]

SECONDS_A_CALL = 0.25
"""What a call may take; more, and the queue of a long run grows without end."""


def episodes_of_all_kinds() -> Iterator[Episode]:
    """Graded, ungraded and failed ones, with calls and without, with awkward text."""
    step = Step("c1", reply={"role": "assistant", "content": "4"}, usage=Usage(5, 1))
    graded = (Trajectory(steps=(step,)), Trajectory("critic", reward=0.5))
    yield Episode("e1", "t", trajectories=graded, output="4", score=Score(1.0), seconds=0.1)
    yield Episode("e2", "t", attempt=1, score=Score(Missing("no judge")), stop=Stop.MAX_TURNS)
    yield Episode("e3", "naïve ☃ \ud800\n", output="\x00", score=Score(Failed("it crashed")))
    yield Episode("e4", "t", stop=Stop.ERROR, error=ErrorRecord("infra", "the sandbox died"))
    yield Episode("e5", "t", score=Score(0.0, parts={"style": 0.5}), metadata={"path": Path("x")})


class TrackerConformance:
    """Subclass it, set `tracker` (and `options` for a test run), and pytest collects the tests.

    `seen` is for the author to say what a finished run left behind: override it, and a run's
    numbers are looked for there.
    """

    tracker: ClassVar[type[Tracker]]
    options: ClassVar[Mapping[str, Any]] = {}

    def make(self) -> Tracker:
        """The tracker under test."""
        return self.tracker(self.tracker.Options(**self.options))

    def seen(self, directory: Path) -> str | None:
        """What a run in this directory left behind, as text; None: it cannot be looked at."""
        del directory
        return None

    @pytest.fixture
    def run(self, tmp_path: Path) -> dict[str, Any]:
        """A run's facts."""
        return {
            "id": "7f3a",
            "kind": "train",
            "directory": str(tmp_path),
            "benchmark": "arithmetic",
            "model": "tiny",
            "harness": "react",
            "steps": 2,
        }

    async def told(self, tracker: Tracker, run: Mapping[str, Any]) -> list[str]:
        """Tell it of a whole run, as the engine does; the complaints that there were."""
        events = Events([tracker])
        episodes = list(episodes_of_all_kinds())
        events.call("rllm_run_started", run=run)
        for episode in episodes:
            events.call("rllm_episode_finished", run=run, episode=episode)
        metrics = {"reward": 0.123456, "kl": float("nan"), "ratio": float("inf")}
        for step in range(2):
            events.call("rllm_step_finished", run=run, step=step, metrics=metrics)
        outcome = {"status": "finished", "summary": summarize(episodes), "events": {"retried": 1}}
        events.call("rllm_run_finished", run=run, summary=outcome)
        await events.close(within=30)
        return events.problems

    async def test_it_takes_a_whole_run(self, run: dict[str, Any], tmp_path: Path) -> None:
        """Every kind of episode and number, without a complaint; its numbers are kept."""
        assert await self.told(self.make(), run) == []
        seen = self.seen(tmp_path)
        assert seen is None or "0.123456" in seen

    async def test_a_run_may_go_on(self, run: dict[str, Any], tmp_path: Path) -> None:
        """Another process tells of the same run again: what there was stays."""
        await self.told(self.make(), run)
        before = self.seen(tmp_path)
        assert await self.told(self.make(), run) == []
        after = self.seen(tmp_path)
        assert before is None or (after is not None and before in after)

    async def test_an_evaluation_has_no_steps(self, run: dict[str, Any]) -> None:
        """Keys that do not apply are absent, and a failed run says less."""
        events = Events([self.make()])
        fewer = {"id": run["id"], "kind": "eval", "directory": run["directory"]}
        events.call("rllm_run_started", run=fewer)
        events.call("rllm_run_finished", run=fewer, summary={"status": "failed"})
        await events.close(within=30)
        assert events.problems == []

    async def test_two_runs_do_not_mix(self, run: dict[str, Any], tmp_path: Path) -> None:
        """Each object keeps its own."""
        other = {**run, "id": "91c2", "directory": str(tmp_path / "other")}
        (tmp_path / "other").mkdir()
        for each in (run, other):
            assert await self.told(self.make(), each) == []

    def test_making_one_leaves_no_trace(self, tmp_path: Path, monkeypatch: Any) -> None:
        """`--dry-run` makes one, to check its options."""
        monkeypatch.chdir(tmp_path)
        self.make()
        assert list(tmp_path.iterdir()) == []

    async def test_calls_are_quick(self, run: dict[str, Any]) -> None:
        """A run of ten thousand episodes must not wait for its tracker at the end."""
        tracker = self.make()
        tracker.rllm_run_started(run)
        (episode, *_) = episodes_of_all_kinds()
        started = time.process_time()
        for _ in range(20):
            tracker.rllm_episode_finished(run, episode)
        assert (time.process_time() - started) / 20 < SECONDS_A_CALL
        tracker.rllm_run_finished(run, {"status": "finished"})

    async def test_the_process_is_left_as_it_was(self, run: dict[str, Any], capsys: Any) -> None:
        """Standard output may be data, and the working directory is the user's."""
        before = Path.cwd(), dict(os.environ)
        await self.told(self.make(), run)
        assert (Path.cwd(), dict(os.environ)) == before
        assert capsys.readouterr().out == ""

    def test_every_option_says_what_it_is_for(self) -> None:
        """It is what `rllm plugins show` prints."""
        fields = attrs.fields(self.tracker.Options)
        assert [a.name for a in fields if not a.metadata.get("doc")] == []
