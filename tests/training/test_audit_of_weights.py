"""The audit's question to the weights, over a training run of the real local backend."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def rllm(home, *arguments):
    command = [sys.executable, "-m", "rllm_core.cli", *arguments]
    environ = {**os.environ, "RLLM_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=180, check=False
    )


def test_recorded_logprobs_are_those_of_the_weights(tmp_path):
    pytest.importorskip("rllm_backend_local")
    done = rllm(
        tmp_path, "train", "arithmetic", "benchmark.level=succ", "models.policy.max_tokens=2",
        "--model", "tiny", "--steps", "8", "--max", "10", "run.checkpoint_every=4",
        "--run-dir", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "every trained token audited" in done.stdout
    told = rllm(tmp_path, "runs", "audit", str(tmp_path / "run"), "--json")
    assert told.returncode == 0, told.stderr
    data = json.loads(told.stdout)
    assert [each["version"] for each in data["rescored"]] == [0, 4, 8]
    assert all(each["largest"] < 1e-4 for each in data["rescored"])
    assert data["tokens"] > 0
    shown = rllm(tmp_path, "runs", "show", str(tmp_path / "run"))
    assert "every trained token audited" in shown.stdout
