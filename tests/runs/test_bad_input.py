"""What cannot work is refused before anything starts: one sentence, exit code 2, no run left."""

import os
import subprocess

import pytest

from rllm_core.testing.wire_server import WireReply

EVAL = ("eval", "arithmetic", "benchmark.level=copy1", "--model", "tiny", "--backend", "table")
TRAIN = ("train", *EVAL[1:])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("eval", "arithmetik", "--model", "tiny"), ["arithmetik", "arithmetic"]),
        (("eval", "--model", "tiny"), ["no benchmark"]),
        (("eval", "arithmetic", "--model", "tinny"), ["tinny", "tiny"]),
        (("eval", "arithmetic", "--model", "./nowhere"), ["nowhere"]),
        (("eval", "arithmetic", "--model", "openai/gpt-5-mini"), ["OPENAI_API_KEY"]),
        ((*EVAL, "benchmark.leval=add1"), ["benchmark.leval", "level"]),
        ((*EVAL, "benchmark.level=add9"), ["benchmark.level", "add9", "add1"]),
        ((*EVAL, "--split", "tset"), ["tset", "test"]),
        ((*EVAL, "run.atempts=2"), ["run.atempts", "attempts"]),
        ((*EVAL, "rum.attempts=2"), ["rum", "run"]),
        ((*EVAL, "run.require_gain=2"), ["run.require_gain", "eval"]),
        ((*EVAL, "harness.max_turns=-1"), ["harness.max_turns"]),
        ((*EVAL, "--harness", "nowhere:agent"), ["nowhere"]),
        ((*EVAL, "--harness", "raect"), ["raect", "react"]),
        ((*EVAL, "--scorer", "exakt"), ["exakt", "exact"]),
        ((*EVAL, "--scorer", "nowhere:score"), ["nowhere"]),
        ((*EVAL, "--backend", "lokal"), ["lokal", "local"]),
        ((*EVAL, "benchmark.skip=1000"), ["benchmark.skip", "1000"]),
        ((*EVAL, 'benchmark.ids=["nobody"]'), ["benchmark.ids", "nobody"]),
        (("eval", "--resume", "never"), ["never", "rllm runs list"]),
        (("eval", "nothing.jsonl", "--model", "tiny"), ["nothing.jsonl"]),
        (("run", "nothing.toml"), ["nothing.toml"]),
        ((*TRAIN, "run.group_size=1"), ["run.group_size", "grpo"]),
        ((*TRAIN, "run.attempts=2"), ["run.attempts", "group_size"]),
        ((*TRAIN, "--algorithm", "grop"), ["grop", "grpo"]),
        (
            ("train", "arithmetic", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"),
            ["cannot be trained"],
        ),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_it_is_one_sentence_with_the_remedy(rllm, home, monkeypatch, words, told):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rllm(*words).refused(*told)
    assert not home.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run.attempts=many",), "run.attempts: expected a whole number, not 'many'"),
        (("run.attempts=0",), "run.attempts: must be at least 1, not 0"),
        (("--max", "0"), "benchmark.max: must be at least 1, not 0 (--max)"),
        (("--temperature", "-1"), "temperature: must be at least 0, not -1"),
    ],
)
def test_a_value_out_of_range_is_told_what_is_in_range(rllm, home, words, told):
    ended = rllm(*EVAL, *words)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert told in line
    assert not home.exists()


def test_an_empty_file_has_no_tasks(rllm, home, tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    rllm("eval", tmp_path / "none.jsonl", "--model", "tiny", "--backend", "table").refused(
        "none.jsonl"
    )
    assert not home.exists()


def test_validation_without_tasks_is_refused_before_training(rllm, home):
    rllm(*TRAIN, "validation.use=arithmetic", "validation.skip=1000").refused("validation.skip")
    assert not home.exists()


def no_account(ended):
    """Assert that a command told nothing of a run, which it never began."""
    assert ended.out == ""
    return ended


def test_a_second_run_in_the_same_directory(rllm, start, serve, tmp_path, read):
    server = serve([WireReply("1", hang=60)])
    words = ("eval", "arithmetic", *server.flags, "--max", 4, "--run-dir", tmp_path / "run")
    first = start(*words)
    while not server.requests:
        assert first.poll() is None, first.communicate()
    no_account(rllm(*words)).refused(f"process {first.pid}", "--run-dir")
    no_account(rllm("eval", "--resume", tmp_path / "run")).refused(f"process {first.pid}")
    first.kill()
    first.communicate()
    server._replies = ["1"]
    no_account(rllm(*words)).refused("already holds a run", "--resume")
    assert rllm("eval", "--resume", tmp_path / "run").code == 0
    assert read(tmp_path / "run").info.status == "finished"
    rllm(*words).refused("already holds a run", "--resume")


def test_a_directory_that_holds_something_else_is_left_alone(rllm, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    rllm(*EVAL, "--run-dir", tmp_path / "mine").refused("thesis.txt", "--run-dir")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_run_directory_that_is_a_file(rllm, tmp_path):
    (tmp_path / "file").write_text("")
    rllm(*EVAL, "--run-dir", tmp_path / "file").refused("cannot be written", "--run-dir")


@pytest.mark.parametrize("words", [(*EVAL, "--run-dir"), ("eval", "--resume"), ("runs", "show")])
def test_a_name_that_no_disk_takes(rllm, words, tmp_path):
    no_account(rllm(*words, tmp_path / ("n" * 300))).refused("too long")


def test_an_agent_that_closes_standard_output_silences_itself_only(start, serve, agent):
    server = serve(["1"])
    words = ("eval", "arithmetic", *server.flags, "--max", 2, "--harness", agent("closes_output"))
    ended = start(*words).ended()
    assert ended.code == 0, ended.err
    assert "printed by the agent" in ended.out
    assert "2 episodes · 0 errors" in ended.out


def test_a_home_that_cannot_be_written(rllm, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "file" / "home"))
    rllm(*EVAL).refused("cannot be written", "RLLM_HOME")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB; skips where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small file system can be mounted here: {error}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=10)


def test_a_read_only_disk(rllm, small_disk):
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True, timeout=10)
    rllm(*EVAL, "--run-dir", small_disk / "run").refused("cannot be written", "--run-dir")


def test_a_disk_that_fills_up_ends_the_run_readable_and_it_goes_on(
    rllm, serve, small_disk, read, tmp_path
):
    server = serve(["1" * 3000])
    words = ("eval", "arithmetic", *server.flags, "--concurrency", 4)
    ended = rllm(*words, "--run-dir", small_disk / "run")
    ended.refused("disk is full", "--resume", code=1)
    kept = len(list(read(small_disk / "run").episodes()))
    asked = len(server.requests)
    assert 0 < kept <= asked < 97
    assert rllm("runs", "show", small_disk / "run").code == 0
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True, timeout=10)
    assert rllm("eval", "--resume", small_disk / "run").code == 0
    assert len(list(read(small_disk / "run").episodes())) == 97
    assert len(server.requests) == asked + 97 - kept


def test_a_disk_that_is_full_from_the_start(rllm, small_disk):
    with pytest.raises(OSError), (small_disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(os.urandom(4096))
            ballast.flush()
    rllm(*EVAL, "--run-dir", small_disk / "run").refused("disk is full", code=1)
