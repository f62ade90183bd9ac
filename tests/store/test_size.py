"""Twenty thousand episodes: written fast, read fast, in flat memory."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rllm_core.statistics import summarize
from rllm_core.store import RunStore

EPISODES = 20_000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_twenty_thousand_episodes(tmp_path):
    program = Path(__file__).with_name("writes_many.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path / "run", str(EPISODES)],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    early, late = told["memory"]
    started = time.monotonic()
    reader = RunStore.read(tmp_path / "run")
    summary = summarize(reader.attempts())
    seconds = time.monotonic() - started
    print(f"{told['rate']:,.0f} episodes/s; {early:.0f} → {late:.0f} MB; summed in {seconds:.2f} s")
    assert summary.episodes == EPISODES
    assert summary.tasks == EPISODES // 4
    assert len(reader.finished("eval")) == EPISODES
    reader.close()
    assert told["rate"] > 500  # 6,000 on an idle core of 2024
    assert late - early < 20
