"""The worker process: how it dies, how it is ended, what crosses the socket."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from array import array
from pathlib import Path

import pytest
from rllm_backend_local import LocalBackend, Options
from rllm_backend_local.environment import usable_cores, worker_environment
from rllm_backend_local.testing import complete

from rllm_core.backend import ModelSpec
from rllm_core.errors import BackendError, ConfigError, InfraError
from rllm_core.upstream import SamplingParams, TokenPrompt


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"


async def gone(pid, seconds=20.0):
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:  # noqa: ASYNC110 - another's process
        await asyncio.sleep(0.05)
    return not alive(pid)


async def started(**options):
    backend = LocalBackend(Options(threads=1, call_timeout=60.0, **options))
    await backend.start()
    model = (await backend.model("policy", ModelSpec("tiny"))).model
    return backend, model, model.worker.process.pid


async def test_a_killed_worker_is_an_error_with_its_signal_for_everyone_who_waits():
    backend, model, pid = await started()
    try:
        with pytest.raises(ConfigError, match="only the role 'policy'"):
            await backend.model("critic", ModelSpec("tiny"))
        with pytest.raises(ConfigError, match="one model"):
            await backend.model("policy", ModelSpec("tiny"))
        upstream = await model.publish(0)
        prompt = TokenPrompt(array("i", [1, 10]))
        pieces = upstream.sample(prompt, SamplingParams(max_tokens=250, stop_token_ids=(99,)))
        await anext(pieces)
        os.kill(pid, signal.SIGSTOP)
        score = asyncio.ensure_future(upstream.score(prompt))
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InfraError, match="SIGKILL"):
            async with asyncio.timeout(30):
                async for _ in pieces:
                    pass
        with pytest.raises(BackendError, match="SIGKILL"):
            await score
        with pytest.raises(BackendError, match="memory"):
            await model.publish(1)
        with pytest.raises(InfraError, match="SIGKILL"):
            await complete(upstream, [1, 10])
    finally:
        await backend.close()
        await backend.close()


async def test_close_ends_a_worker_that_does_not_answer():
    backend, model, pid = await started(max_rows=2)
    os.kill(pid, signal.SIGSTOP)
    model.worker.call_timeout = 0.2
    with pytest.raises(BackendError, match=r"'publish' within 0\.2 s"):
        await model.publish(1)
    await backend.close()
    assert not alive(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_the_worker_ends_with_its_parent(how):
    script = """
    import asyncio
    from rllm_backend_local import LocalBackend, Options
    async def main():
        backend = LocalBackend(Options(threads=1))
        await backend.start()
        print(backend._worker.process.pid, flush=True)
        await asyncio.sleep(60)
    asyncio.run(main())
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(how)
    assert await gone(pid)


async def test_a_worker_that_cannot_start_says_so(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    backend = LocalBackend(Options(start_timeout=0.01))
    with pytest.raises(InfraError, match=r"within 0\.01 s"):
        await backend.start()
    await backend.close()
    with pytest.raises(BackendError, match="not started"):
        await backend.model("policy", ModelSpec("tiny"))


def test_the_waiting_policy_is_the_users_or_fits_the_machine(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    quiet = worker_environment(0, {})
    assert quiet["GOMP_SPINCOUNT"] == "100000"
    assert quiet["OMP_NUM_THREADS"] == str(usable_cores())
    assert worker_environment(3, {"CI": "1"})["OMP_WAIT_POLICY"] == "PASSIVE"
    assert worker_environment(3, {"CI": "1"})["OMP_NUM_THREADS"] == "3"
    assert "OMP_WAIT_POLICY" not in worker_environment(0, {"GOMP_SPINCOUNT": "7", "CI": "1"})
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert worker_environment(0, {})["OMP_WAIT_POLICY"] == "PASSIVE"
