"""User code that hangs where nothing can interrupt it: deadlines end it, and the process too."""

import time

ARITHMETIC = ("eval", "arithmetic", "benchmark.level=copy1", "--max", 4)


def test_a_rollout_function_that_hangs(start, serve, agent, tmp_path, read):
    server = serve(["1"])
    words = (*ARITHMETIC, *server.flags, "--harness", agent("hangs"), "run.deadline=1")
    ended = start(*words, "--run-dir", tmp_path / "run").ended(20)
    ended.refused("within 1 s (run.deadline)", code=1)
    episodes = list(read(tmp_path / "run").episodes())
    assert [e.error.category for e in episodes] == ["timeout"] * 4
    assert all(1.0 <= e.seconds < 3.0 for e in episodes)


def test_a_scorer_that_hangs(start, serve, agent, tmp_path, read):
    server = serve(["1"])
    words = (*ARITHMETIC, *server.flags, "--scorer", agent("never_scores"), "run.deadline=1")
    begun = time.monotonic()
    ended = start(*words, "--run-dir", tmp_path / "run").ended(20)
    assert time.monotonic() - begun < 15
    ended.refused("scoring did not end within the 1 s of run.deadline", code=1)
    episodes = list(read(tmp_path / "run").episodes())
    assert [e.error.category for e in episodes] == ["score"] * 4
    assert all(e.output == "1" for e in episodes)
