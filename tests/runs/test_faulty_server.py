"""Evaluations against servers that misbehave: one sentence, in bounded time, nothing lost."""

import socket
import time

import pytest

from rllm_core.testing.wire_server import WireReply

ARITHMETIC = ("eval", "arithmetic", "benchmark.level=copy1", "--run-dir")


@pytest.fixture
def run(tmp_path, rllm):
    """Evaluate the ten tasks of copy1, by default; what came of it, and in how many seconds."""

    def call(*words):
        started = time.monotonic()
        ended = rllm(*ARITHMETIC, tmp_path / "run", *words)
        ended.seconds = time.monotonic() - started
        return ended

    return call


def right(body):
    """A model that knows all answers."""
    return body["messages"][-1]["content"].rstrip("=")


def closed_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_a_server_that_is_down(run, tmp_path, read):
    url = f"http://127.0.0.1:{closed_port()}/v1"
    ended = run("--base-url", url, "--model", "m")
    ended.refused(url, "cannot be reached", "--resume", code=1)
    assert ended.seconds < 20
    reader = read(tmp_path / "run")
    assert reader.info.status in ("finished", "failed")
    assert all(e.error.category == "model" for e in reader.episodes())


def test_a_server_that_always_answers_500(run, serve, tmp_path, read):
    server = serve([WireReply(status=500)])
    ended = run(*server.flags)
    ended.refused("answered 500", "--resume", code=1)
    assert ended.seconds < 20
    assert {e.error.category for e in read(tmp_path / "run").episodes()} == {"model"}


def test_a_server_that_hangs(run, serve):
    server = serve([WireReply("1", hang=60)])
    ended = run(*server.flags, "run.deadline=1")
    ended.refused("within 1 s", "run.deadline", "--resume", code=1)
    assert ended.seconds < 8


def test_a_server_whose_json_is_malformed(run, serve):
    server = serve([WireReply(body='{"choices": [', malformed=True)])
    ended = run(*server.flags)
    ended.refused("--resume", code=1)
    assert ended.seconds < 20


def test_a_server_without_token_ids_is_fit_for_evaluation(run, serve, tmp_path, read):
    server = serve(right, ids=False)
    ended = run(*server.flags)
    assert ended.code == 0, ended.err
    assert "accuracy 1.00" in ended.out
    steps = [s for e in read(tmp_path / "run").episodes() for s in e.steps]
    assert len(steps) == 10
    assert all(step.untrainable and not step.output_ids for step in steps)


def test_a_busy_server_is_asked_again_when_it_says(run, serve):
    replies = [WireReply(status=429, retry_after="0.2")] * 10
    server = serve([*replies, "1"])
    ended = run(*server.flags, "--concurrency", 10)
    assert ended.code == 0, ended.err
    assert len(server.requests) == 20


def test_one_failing_task_does_not_stop_the_others(run, serve, agent, tmp_path, read):
    server = serve(right)
    ended = run(*server.flags, "--harness", agent("one_fails"))
    ended.refused("1 of 10 rollouts failed", "the tool broke", "--resume", code=1)
    assert "over the 9 graded alone" in ended.out
    episodes = list(read(tmp_path / "run").episodes())
    assert len(episodes) == 10
    (failed,) = [e for e in episodes if e.error is not None]
    assert failed.error.category == "harness"
    assert "the tool broke" in failed.error.message
    assert failed.error.detail


def test_only_what_failed_is_run_again(run, serve, rllm, tmp_path):
    def sick(body):
        return WireReply(status=400, body="no") if "3=" in str(body) else right(body)

    server = serve(sick)
    assert run(*server.flags).code == 1
    assert len(server.requests) == 10
    server._replies = right
    ended = rllm("eval", "--resume", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "accuracy 1.00" in ended.out
    assert len(server.requests) == 11


def test_a_run_in_which_most_rollouts_fail_ends_early(rllm, serve, tmp_path, read):
    server = serve([WireReply(status=400, body="no such model")])
    ended = rllm(
        "eval", "arithmetic", *server.flags, "--concurrency", 4, "--run-dir", tmp_path / "r"
    )
    ended.refused("of 20 rollouts failed", "no such model", "run.max_error_share", code=1)
    reader = read(tmp_path / "r")
    assert reader.info.status == "failed"
    assert 20 <= len(list(reader.episodes())) < 30
