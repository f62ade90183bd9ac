"""The jsonl tracker: the suite of its kind, what its lines hold, and a real run."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rllm_tracker_jsonl import NAME, JsonLines

from rllm_core.errors import ConfigError
from rllm_core.plugins import build_options
from rllm_core.serialize import from_json
from rllm_core.testing import TrackerConformance
from rllm_core.testing.tracker import episodes_of_all_kinds
from rllm_core.types import Episode


class TestJsonLines(TrackerConformance):
    tracker = JsonLines

    def seen(self, directory: Path) -> str:
        return (directory / NAME).read_text()


class TestConversations(TestJsonLines):
    options = {"conversations": True}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def tell(tracker: JsonLines, directory: Path) -> None:
    run = {"id": "7f3a", "directory": str(directory)}
    tracker.rllm_run_started(run)
    for episode in episodes_of_all_kinds():
        tracker.rllm_episode_finished(run, episode)
    tracker.rllm_step_finished(run, 0, {"reward": 0.5, "kl": math.nan})
    tracker.rllm_run_finished(run, {"status": "failed", "reason": "out of luck"})


def test_what_the_lines_hold(tmp_path) -> None:
    tell(JsonLines(), tmp_path)
    started, *episodes, step, finished = lines(tmp_path / NAME)
    assert started["event"] == "run_started"
    assert [e["reward"] for e in episodes] == [1.0, None, None, None, 0.0]
    assert [e["graded"] for e in episodes[:3]] == [None, "no judge", "it crashed"]
    assert (episodes[0]["calls"], episodes[0]["tokens"], episodes[3]["error"]) == (1, 1, "infra")
    assert step["metrics"] == {"reward": 0.5, "kl": None}
    assert (finished["status"], finished["reason"]) == ("failed", "out of luck")
    assert {line["run_id"] for line in [started, *episodes, step, finished]} == {"7f3a"}


def test_an_episode_may_be_kept_whole(tmp_path) -> None:
    file = tmp_path / "deep" / "numbers.jsonl"
    tell(JsonLines(JsonLines.Options(file=file, conversations=True)), tmp_path)
    (first, *_) = episodes_of_all_kinds()
    assert from_json(Episode, lines(file)[1]["whole"]) == first
    assert not (tmp_path / NAME).exists()


def test_episodes_may_be_left_out(tmp_path) -> None:
    tell(JsonLines(JsonLines.Options(episodes=False)), tmp_path)
    events = [line["event"] for line in lines(tmp_path / NAME)]
    assert events == ["run_started", "step_finished", "run_finished"]


def test_a_directory_is_no_file(tmp_path) -> None:
    with pytest.raises(ConfigError, match="file: must be a file"):
        build_options(JsonLines, {"file": str(tmp_path)})


@pytest.mark.slow
def test_a_whole_run(tmp_path) -> None:
    """Trained on the command line, with the built-in tiny model."""
    command = [sys.executable, "-m", "rllm_core.cli", "train", "arithmetic", "--model", "tiny"]
    settings = ["benchmark.level=copy1", "trackers.use=jsonl", "run.steps=2", "run.group_size=2"]
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run"), *settings, "validation.use=arithmetic",
         "validation.level=copy1", "validation.max=2"],
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [line["event"] for line in lines(tmp_path / "run" / NAME)]
    assert (events[0], events[-1], events.count("step_finished")) == (
        "run_started",
        "run_finished",
        2,
    )
