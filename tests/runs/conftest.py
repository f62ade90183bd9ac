"""What whole-run tests stand on: a home of their own, the command line, servers, a fast backend."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from rllm_core.cli.frame import run_command
from rllm_core.store import RunStore
from rllm_core.testing.wire_server import WireServer

AGENTS = Path(__file__).parent / "agents.py"
NOISE = re.compile(r"Traceback|never awaited|Unclosed|Error handling request|exception was never")

TABLE = """
from rllm_core import hookimpl
from rllm_core.testing.backend import TableBackend

@hookimpl
def rllm_backend():
    return TableBackend
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A directory of installed packages: the table backend under the name `table`."""
    path = tmp_path_factory.mktemp("site")
    (path / "rllm_backend_table.py").write_text(textwrap.dedent(TABLE))
    info = path / "rllm_backend_table-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: rllm-backend-table\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text("[rllm.backends]\ntable = rllm_backend_table\n")
    return path


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, site):
    """An empty RLLM_HOME, and the environment of every process that a test starts."""
    for name in [n for n in os.environ if n.startswith("RLLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(site)
    return tmp_path / "home"


class Ended:
    """How a command ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        assert not NOISE.search(err), err
        assert not NOISE.search(out), out

    def refused(self, *words, code=2):
        """One clear sentence with a remedy, and this exit code; returns what it said."""
        assert self.code == code, (self.code, self.out, self.err)
        told = self.err.rstrip().splitlines()
        first = [line for line in told if line.startswith("error: ")]
        assert len(first) == 1, self.err
        assert any(line.startswith("       ") for line in told), f"no remedy: {self.err}"
        for word in words:
            assert word in self.err, (word, self.err)
        return self.err


@pytest.fixture
def rllm(capfd):
    """rllm(*words): a command in this process."""

    def call(*words):
        capfd.readouterr()
        code = run_command([str(word) for word in words])
        return Ended(code, *capfd.readouterr())

    return call


class Process(subprocess.Popen):
    """A command in a process group of its own."""

    def ended(self, timeout=60):
        """How it ended; one that outlives its time is a failure."""
        try:
            out, err = self.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.communicate()
            raise AssertionError(f"running after {timeout} s:\n{out}\n{err}") from None
        return Ended(self.returncode, out, err)


@pytest.fixture
def start():
    """start(*words, **environ): a command in a process of its own, killed with the test."""
    begun = []

    def call(*words, **environ):
        process = Process(
            [sys.executable, "-m", "rllm_core.cli", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environ},
        )
        begun.append(process)
        return process

    yield call
    for process in begun:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def serve():
    """serve(replies): a scripted model server in a thread, which outlives a test's event loops."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    servers = []

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    def call(replies, **options):
        server = WireServer(replies, **options)
        run(server.__aenter__())
        servers.append(server)
        server.flags = ("--base-url", server.base_url, "--model", "m")
        return server

    yield call
    for server in servers:
        run(server.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


@pytest.fixture
def read():
    """read(directory): a run, opened to read until the test ends."""
    with contextlib.ExitStack() as stack:

        def call(directory):
            reader = RunStore.read(Path(directory))
            stack.callback(reader.close)
            return reader

        yield call


@pytest.fixture
def agent():
    """agent(name): the reference to one of `agents.py`."""
    return lambda name: f"{AGENTS}:{name}"
