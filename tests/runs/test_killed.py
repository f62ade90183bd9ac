"""Evaluations that are killed or interrupted half-way, and go on without repeating anything."""

import json
import os
import signal
import time

import pytest

from rllm_core.testing.wire_server import WireReply

TASKS = 40


def right_after(seconds):
    """A model whose answer is the first number."""
    return lambda body: WireReply(
        body["messages"][-1]["content"].partition(" + ")[0][-1], hang=seconds
    )


@pytest.fixture
def half_way(start, serve, tmp_path):
    """An evaluation in a process of its own, of which about half has been done."""

    def call(*words):
        server = serve(right_after(0.08))
        given = ("arithmetic", *server.flags, "--max", TASKS, "--concurrency", 2)
        process = start("eval", *given, "--run-dir", tmp_path / "run", *words)
        give_up = time.monotonic() + 60
        while len(server.requests) < TASKS // 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < give_up
            time.sleep(0.01)
        server._replies = right_after(0.0)
        return process, server, given

    return call


def summary(ended):
    """The results of `--json`, without what differs from run to run."""
    found = json.loads(ended.out)["results"]["arithmetic"]
    return {k: v for k, v in found.items() if k != "seconds"}


def test_killed_and_resumed_asks_only_what_is_missing(half_way, rllm, tmp_path, read):
    process, server, given = half_way()
    process.kill()
    process.communicate()
    reader = read(tmp_path / "run")
    assert reader.info.status == "killed"
    kept = {e.task_id for e in reader.episodes()}
    assert TASKS // 4 < len(kept) < TASKS
    before = len(server.requests)
    resumed = rllm("eval", "--resume", tmp_path / "run", "--json")
    assert resumed.code == 0, resumed.err
    assert len(server.requests) - before == TASKS - len(kept)
    places = [(e.task_id, e.attempt) for e in read(tmp_path / "run").episodes()]
    assert len(places) == len(set(places)) == TASKS
    whole = rllm("eval", *given, "--run-dir", tmp_path / "whole", "--json")
    assert summary(whole) == summary(resumed)


def test_a_finished_run_that_is_resumed_repeats_nothing(rllm, serve, tmp_path):
    server = serve(["1"])
    rllm("eval", "arithmetic", *server.flags, "--max", 4, "--run-dir", tmp_path / "run")
    resumed = rllm("eval", "--resume", tmp_path / "run")
    assert resumed.code == 0
    assert "4 of 4 episodes were finished before" in resumed.out
    assert len(server.requests) == 4


@pytest.mark.parametrize("whole_group", [False, True])
def test_one_ctrl_c_leaves_a_readable_run_that_goes_on(half_way, rllm, tmp_path, read, whole_group):
    process, *_ = half_way()
    send = os.killpg if whole_group else os.kill
    send(process.pid, signal.SIGINT)
    stopped = process.ended(15)
    assert stopped.code == 130
    assert stopped.err.strip() == "stopped"
    assert f"rllm eval --resume {tmp_path / 'run'}" in stopped.out
    assert "interrupted" in stopped.out
    assert read(tmp_path / "run").info.status == "interrupted"
    shown = rllm("runs", "show", tmp_path / "run")
    assert shown.code == 0
    assert "interrupted" in shown.out
    resumed = rllm("eval", "--resume", tmp_path / "run")
    assert resumed.code == 0, resumed.err
    places = [(e.task_id, e.attempt) for e in read(tmp_path / "run").episodes()]
    assert len(places) == len(set(places)) == TASKS


def test_ctrl_c_while_a_server_hangs_ends_at_once(start, serve, tmp_path):
    server = serve([WireReply("1", hang=60)])
    process = start("eval", "arithmetic", *server.flags, "--run-dir", tmp_path / "run")
    while not server.requests:
        assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGINT)
    assert process.ended(10).code == 130


def test_sigterm_leaves_a_run_that_goes_on(half_way, rllm, tmp_path, read):
    process, *_ = half_way()
    process.terminate()
    assert process.ended(15).code == 130
    assert read(tmp_path / "run").info.status == "interrupted"
    assert rllm("eval", "--resume", tmp_path / "run").code == 0
    assert len(list(read(tmp_path / "run").episodes())) == TASKS
