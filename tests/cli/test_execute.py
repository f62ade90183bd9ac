"""`run`, `eval` and `train`: the dry run, data on standard output, narrow and old terminals."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import tomllib

import pytest

from rllm_core.cli.frame import run_command
from rllm_core.testing.wire_server import WireServer

pytest.importorskip("rllm_benchmark_arithmetic", reason="rllm-benchmark-arithmetic is missing")

SECRET = "sk-very-secret-0123456789"
HARSH = {"LC_ALL": "C", "COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "0"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("RLLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def server():
    """A server that always answers 7, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made = WireServer(["7"])
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(20)
    yield made
    asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


@pytest.fixture
def rllm(capfd):
    """rllm(*words): the exit code, standard output, standard error."""

    def call(*words):
        capfd.readouterr()
        return run_command([str(word) for word in words]), *capfd.readouterr()

    return call


DRY = (
    ("eval", "arithmetic", "--base-url", "http://localhost:1/v1", "--model", "m", "--max", "3"),
    ("eval", "arithmetic", "--model", "openai/gpt-5-mini", "--attempts", "4", "--shuffle"),
    ("eval", "arithmetic", "gsm8k", "--model", "tiny", "harness.max_turns=2"),
    ("train", "arithmetic", "benchmark.level=copy1", "--model", "tiny", "--steps", "3"),
    (
        "train", "arithmetic", "--model", "hf/org/name", "backend.mode=lora", "algorithm.ddof=1",
        "validation.use=arithmetic", "validation.level=add2", "--learning-rate", "1e-4",
    ),
)  # fmt: skip


@pytest.mark.parametrize("words", DRY, ids=" ".join)
def test_a_dry_run_prints_a_file_that_runs_again_and_says_the_same(
    rllm, home, tmp_path, monkeypatch, words
):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    code, printed, err = rllm(*words, "--dry-run")
    assert (code, err) == (0, "")
    assert tomllib.loads(printed)["run"]["kind"] == words[0]
    assert SECRET not in printed
    (tmp_path / "again.toml").write_text(printed)
    code, again, err = rllm("run", tmp_path / "again.toml", "--dry-run")
    assert (code, err) == (0, "")
    assert again == printed
    assert not home.exists()


def test_a_key_is_in_no_file_of_a_run(rllm, server, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", SECRET)
    words = ("--base-url", server.base_url, "--model", "m", "models.policy.api_key_env=MY_KEY")
    code, out, err = rllm("eval", "arithmetic", *words, "--max", 2, "--run-dir", tmp_path / "run")
    assert code == 0, err
    assert server.requests[0][0]["Authorization"] == f"Bearer {SECRET}"
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in out + err


def test_json_is_all_that_goes_to_standard_output(rllm, server, tmp_path):
    words = ("--base-url", server.base_url, "--model", "m", "--max", 10, "--attempts", 2)
    code, out, err = rllm("eval", "arithmetic", *words, "--json", "--run-dir", tmp_path / "run")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["directory"] == str(tmp_path / "run")
    assert found["results"]["arithmetic"]["episodes"] == 20


def test_a_file_of_a_finished_run_runs_again(rllm, server, tmp_path):
    words = ("--base-url", server.base_url, "--model", "m", "--max", 3)
    assert rllm("eval", "arithmetic", *words, "--run-dir", tmp_path / "run")[0] == 0
    stored = tmp_path / "run" / "config.toml"
    code, _, err = rllm("run", stored, f"run.directory={tmp_path / 'again'}")
    assert code == 0, err
    assert len(server.requests) == 6


def test_where_to_go_on_is_a_command_that_works(rllm, server, home, tmp_path):
    words = ("eval", "arithmetic", "--base-url", server.base_url, "--model", "m", "--max", 3)
    for directory in ((), ("--run-dir", tmp_path / "elsewhere")):
        _, out, _ = rllm(*words, *directory)
        (line,) = [each for each in out.splitlines() if each.startswith("next: ")]
        show = line.removeprefix("next: rllm ").split(" ")
        assert rllm(*show)[0] == 0


def test_what_is_typed_with_resume_counts(rllm, server, tmp_path):
    words = ("--base-url", server.base_url, "--model", "m", "--max", 3)
    rllm("eval", "arithmetic", *words, "--run-dir", tmp_path / "run")
    code, out, err = rllm("eval", "--resume", tmp_path / "run", "--attempts", 2)
    assert code == 0, err
    assert "3 of 6 episodes were finished before" in out
    assert len(server.requests) == 6
    code, out, err = rllm("eval", "--resume", tmp_path / "run")
    assert code == 0, err
    assert "6 of 6 episodes were finished before" in out


def test_the_same_command_goes_on_with_resume(rllm, server, tmp_path):
    words = ("arithmetic", "benchmark.level=copy1", "--base-url", server.base_url, "--model", "m")
    same = ("eval", *words, "--max", 3, "--run-dir", tmp_path / "run")
    assert rllm(*same)[0] == 0
    code, out, err = rllm(*same, "--resume", tmp_path / "run")
    assert code == 0, err
    assert "3 of 3 episodes were finished before" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("eval", "--model", "n"), "models.policy.name: a run that goes on keeps it: 'm', not 'n'"),
        (("eval", "arithmetic"), "benchmark.level: a run that goes on keeps it: 'copy1', not"),
        (("eval", "benchmark.level=succ"), "benchmark.level"),
        (("eval", "--harness", "json:loads"), "json:loads"),
        (("eval", "--scorer", "exact"), "scorer.use"),
        (("eval", "--temperature", "0.5"), "models.policy.temperature"),
        (("eval", "--seed", "1"), "run.seed"),
        (("eval", "--run-dir", "elsewhere"), "run.directory"),
        (("train",), "is of kind 'eval', not 'train'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_decides_results_cannot_change_in_mid_run(rllm, server, tmp_path, words, told):
    given = ("--base-url", server.base_url, "--model", "m", "--run-dir", tmp_path / "run")
    assert rllm("eval", "arithmetic", "benchmark.level=copy1", "--max", 3, *given)[0] == 0
    code, _, err = rllm(*words, "--resume", tmp_path / "run")
    assert code == 2
    assert told in err
    assert err.count("error: ") == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize("words", [("--max", "3"), ("--max", "3", "--json")])
def test_in_a_c_locale_and_a_narrow_dumb_terminal(server, words):
    command = ("eval", "arithmetic", "--base-url", server.base_url, "--model", "m", *words)
    ended = subprocess.run(
        [sys.executable, "-m", "rllm_core.cli", *command],
        check=False,
        capture_output=True,
        timeout=60,
        env={**os.environ, **HARSH},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b""
    assert b"\x1b" not in ended.stdout
    ended.stdout.decode("ascii")
    if "--json" in words:
        assert json.loads(ended.stdout)["results"]
    else:
        assert b"accuracy" in ended.stdout
