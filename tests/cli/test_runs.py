"""`rllm runs list` and `show`, as a user types them."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from rllm_core.errors import ConfigError
from rllm_core.serialize import from_json
from rllm_core.store import RunStore, find_run, new_run_id
from rllm_core.types import (
    Episode,
    ErrorRecord,
    Failed,
    Score,
    Step,
    Stop,
    Trajectory,
    Usage,
    VersionSpan,
)

CONFIG = """
[run]
kind = "train"
[[benchmark]]
use = "arithmetic"
[harness]
use = "react"
[models.policy]
name = "smollm2-135m"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty RLLM_HOME."""
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rllm(*arguments, **environ):
    """Run `rllm runs …` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from rllm_core.cli import main; main()", "runs", *arguments],
        env={**os.environ, "LANG": "C.UTF-8", "COLUMNS": "120", **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def step(i, text):
    return Step(
        f"c{i}",
        messages=({"role": "user", "content": f"What is {i} + 1?"},),
        reply={"role": "assistant", "content": text},
        context_ids=range(12),
        output_ids=[1, 2],
        logprobs=[-0.5, -0.3],
        versions=(VersionSpan(0, 2, 3),),
        usage=Usage(12, 2),
        model="smollm2-135m",
    )


def write_training(directory, run_id="7f3a", name="first"):
    store = RunStore.create(
        directory, run_id=run_id, kind="train", name=name, config_toml=CONFIG, plugins={"a": "b 1"}
    )
    for phase, right in (("before", 2), ("train", 5), ("after", 7)):
        for i in range(8):
            score = Score(float(i < right), {"format": 1.0, "proof": Failed("no parser")})
            trajectory = Trajectory(steps=(step(i, str(i + 1)),))
            episode = Episode(f"{phase}-{i}-0", f"t{i}", 0, (trajectory,), str(i + 1), score)
            store.add_episode(phase, i, 0, episode)
    failed = Episode(
        "train-8-0", "t8", 0, error=ErrorRecord("infra", "the box\ndied"), stop=Stop.ERROR
    )
    store.add_episode("train", 8, 0, failed)
    for i in range(60):
        store.add_metrics(i, {"reward": i / 60})
    path = store.checkpoint_dir(60)
    path.mkdir()
    store.add_checkpoint(60, path)
    store.add_event("retried", "train-1-0")
    return store


@pytest.fixture
def training(home):
    store = write_training(home / "runs" / "7f3a")
    store.set_status("finished")
    store.close()
    return store.directory


def test_list_is_a_table_and_json(home, training):
    lines = rllm("list").stdout.splitlines()
    assert lines[0].split() == [
        "id",
        "kind",
        "name",
        "benchmark",
        "model",
        "status",
        "result",
        "when",
    ]
    assert lines[1].split()[:6] == [
        "7f3a",
        "train",
        "first",
        "arithmetic",
        "smollm2-135m",
        "finished",
    ]
    assert "0.25 → 0.88 ± 0.12" in lines[1]
    (row,) = json.loads(rllm("list", "--json").stdout)
    assert (row["id"], row["benchmark"], row["status"]) == ("7f3a", "arithmetic", "finished")
    assert row["results"]["after"] == {"accuracy": 0.875, "se": pytest.approx(0.125)}


def test_list_without_runs(home):
    assert "There are no runs in" in rllm("list").stdout
    assert json.loads(rllm("list", "--json").stdout) == []


def test_a_run_that_cannot_be_read_hides_no_other(home, training):
    broken = home / "runs" / "dead"
    broken.mkdir()
    (broken / "run.db").write_bytes(b"no database" * 100)
    done = rllm("list", "--json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["7f3a"]
    assert "left out: the run in" in done.stderr
    assert rllm("show", "dead").returncode == 2


def test_show_tells_what_happened(training):
    done = rllm("show", "first")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "run 7f3a  first · arithmetic · smollm2-135m · react · train · finished · 20"
    )
    assert lines[1] == "before  accuracy 0.25 ± 0.16 (8 tasks)"
    assert "train  accuracy 0.56 ± 0.18 (9 tasks)" in done.stdout
    assert "counting 1 error as wrong; 0.62 ± 0.18 over the 8 graded alone" in done.stdout
    assert "reward over 60 steps  0.00 ▁" in done.stdout
    assert "24 calls · 288 prompt + 48 completion tokens" in done.stdout
    account = "account: 25 episodes · 1 error (1 infra) · 0 truncated · 0 ungraded · 1 retried"
    assert account in lines
    assert "  1 infra: the box died" in lines
    assert f"checkpoint of step 60: {training}/checkpoints/step-000060" in lines
    assert lines[-1] == f"config: {training}/config.toml"


def test_show_json_is_nothing_but_data(training):
    data = json.loads(rllm("show", "7f3a", "--json").stdout)
    assert data["phases"]["after"]["accuracy"]["mean"] == 0.875
    assert data["account"]["errors"] == {"infra": 1}
    assert data["account"]["events"] == {"retried": 1}
    assert data["errors"] == {"infra": {"count": 1, "example": "the box\ndied"}}
    assert len(data["rewards"]) == data["steps"] == 60
    assert data["plugins"] == {"a": "b 1"}


def test_show_one_episode(training):
    text = rllm("show", "7f", "--episode", "train-3").stdout
    assert text.splitlines()[:4] == [
        "episode train-3-0 · task t3",
        "reward 1.00 · ended: done · 0 s",
        "  format: 1.00",
        "  proof: not graded, the scorer failed: no parser",
    ]
    assert "call c3 · a new branch · smollm2-135m" in text
    assert "  user: What is 3 + 1?\n  assistant: 4\n" in text
    assert "[12 context + 2 sampled tokens · mean logprob -0.40 · weights 3 · finish: stop]" in text
    failed = rllm("show", "7f3a", "--episode", "train-8-0").stdout
    assert "reward not graded: the box died · ended: error" in failed
    assert "error (infra): the box\ndied" in failed
    data = json.loads(rllm("show", "7f3a", "--episode", "train-3-0", "--json").stdout)
    assert from_json(Episode, data).trajectories[0].steps == (step(3, "4"),)


def test_show_lists_episodes(training):
    lines = rllm("show", "7f3a", "--episodes").stdout.splitlines()
    assert len(lines) == 25
    assert lines[0] == "before-0-0 · t0 · 1.00 · done"
    rows = json.loads(rllm("show", "7f3a", "--episodes", "--json").stdout)
    assert rows[-1]["graded"] == {"missing": "the box\ndied"}
    assert {row["id"] for row in rows} >= {"before-0-0", "after-7-0"}


def test_tool_calls_and_thoughts_are_shown(home):
    store = RunStore.create(
        home / "runs" / "ab12", run_id="ab12", kind="eval", name=None, config_toml="", plugins={}
    )
    call = {"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    reply = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm\nyes",
        "tool_calls": [call],
    }
    image = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    told = Step(
        "c",
        parent="b",
        messages=({"role": "user", "content": image},),
        reply=reply,
        untrainable="server re-tokenised",
        usage=Usage(7, 3),
        seconds=2.0,
    )
    store.add_episode("eval", 0, 0, Episode("e", "t", trajectories=(Trajectory(steps=(told,)),)))
    store.close()
    text = rllm("show", "ab12", "--episode", "e").stdout
    assert "call c · after b" in text
    assert '  user: look\n    {"type": "image_url"' in text
    assert '  assistant: hm\n    yes\n    calls add({"a": 1})\n' in text
    assert "[7 prompt + 3 completion tokens · finish: stop · cannot be trained on: server" in text


def test_a_run_that_is_being_written_is_shown_as_running(home):
    store = write_training(home / "runs" / "7f3a")
    asyncio.run(store.flush())
    assert " · running · " in rllm("show", "7f3a").stdout
    store.close()
    assert " · killed · " in rllm("show", str(store.directory)).stdout


def test_a_run_that_failed_says_why(home):
    store = write_training(home / "runs" / "7f3a")
    store.set_status("failed")
    store.add_event("ended", "StoreError: the disk is full")
    store.close()
    lines = rllm("show", "7f3a").stdout.splitlines()
    assert lines[1] == "failed: StoreError: the disk is full"
    assert not any("1 ended" in line for line in lines)
    assert json.loads(rllm("show", "7f3a", "--json").stdout)["ending"].endswith("disk is full")


def test_unknown_runs_and_episodes_are_one_sentence(training):
    done = rllm("show", "7f4a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no run '7f4a' in" in done.stderr
    assert "near it: 7f3a" in done.stderr
    assert "rllm runs list" in done.stderr
    done = rllm("show", "7f3a", "--episode", "nope")
    assert done.returncode == 2
    assert "run 7f3a has no episode 'nope'" in done.stderr


def test_finding_runs(home, training, tmp_path):
    write_training(home / "runs" / "7f99", run_id="7f99", name="second").close()
    write_training(home / "runs" / "abcd", run_id="abcd", name="second").close()
    elsewhere = write_training(tmp_path / "elsewhere", run_id="eeee")
    elsewhere.close()
    assert find_run("7f3a") == training
    assert find_run("7f3") == training
    assert find_run("first") == training
    assert find_run(str(elsewhere.directory)) == elsewhere.directory
    with pytest.raises(ConfigError, match=r"'7f' fits several runs: (7f99, 7f3a|7f3a, 7f99)"):
        find_run("7f")
    with pytest.raises(ConfigError, match="'second' fits several runs"):
        find_run("second")
    for nothing in ("", "zzzz", "nowhere/run"):
        with pytest.raises(ConfigError, match="there is no run"):
            find_run(nothing)
    ids = {new_run_id() for _ in range(200)}
    assert not ids & {"7f3a", "7f99", "abcd"}
    assert all(len(name) >= 4 and not name.isdigit() for name in ids)


@pytest.mark.parametrize("environ", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}])
def test_a_c_locale_gets_ascii(training, environ):
    for arguments in (["list"], ["show", "7f3a"], ["show", "7f3a", "--episode", "train-3"]):
        text = rllm(*arguments, **environ).stdout
        assert text
        assert text.isascii()


def test_a_narrow_terminal_keeps_every_row_whole(training):
    lines = rllm("list", COLUMNS="40").stdout.splitlines()
    assert lines[0].split() == ["id", "status", "result"]
    assert lines[1].split() == ["7f3a", "finished", "0.25", "→", "0.88", "±", "0.12"]
    wider = rllm("list", COLUMNS="60").stdout.splitlines()
    assert wider[0].split() == ["id", "benchmark", "model", "status", "result"]
    assert max(map(len, wider)) <= 60
