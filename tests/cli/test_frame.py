"""The frame: errors as sentences on stderr, exit codes, and output in any locale."""

import errno
import os
import subprocess
import sys

import click
import pytest

from rllm_core.cli import frame
from rllm_core.cli.group import COMMANDS, rllm
from rllm_core.errors import ConfigError, InfraError
from rllm_core.plugins.options import Problems


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RLLM_DEBUG", raising=False)
    return tmp_path / "home"


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "rllm_core.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )


@pytest.fixture
def failing(monkeypatch):
    """The command line with one more command, which raises what it is told to."""

    def install(error: BaseException) -> int:
        @click.command()
        def boom():
            raise error

        monkeypatch.setitem(rllm.commands, "boom", boom)
        monkeypatch.setattr(
            type(rllm), "get_command", lambda self, ctx, name: self.commands.get(name)
        )
        return frame.run_command(["boom"])

    return install


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            ConfigError("a.b: no", remedy="do c\nor d"),
            2,
            "error: a.b: no\n       do c\n       or d\n",
        ),
        (
            Problems([ConfigError("one", remedy="x"), ConfigError("two")]),
            2,
            "error: one\n       x\nerror: two\n",
        ),
        (InfraError("the worker died"), 1, "error: the worker died\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x"),
            1,
            "error: No space left on device: /x\n",
        ),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "a" * 300),
            2,
            f"error: File name too long: {'a' * 100}\n       a name",
        ),
        (ValueError("odd\nthing"), 70, "error: unexpected ValueError: odd thing\n"),
    ],
)
def test_an_error_is_a_sentence_and_a_code(failing, capsys, error, code, text) -> None:
    assert failing(error) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.lstrip().startswith(text)
    assert "Traceback" not in told.err


def test_a_defect_leaves_its_traceback_in_a_file(failing, capsys, home) -> None:
    failing(ValueError("odd"))
    (crash,) = (home / "logs").iterdir()
    assert str(crash) in capsys.readouterr().err
    assert "ValueError: odd" in crash.read_text()


def test_debug_shows_the_traceback(failing, capsys, monkeypatch) -> None:
    monkeypatch.setenv("RLLM_DEBUG", "1")
    failing(ValueError("odd"))
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_command_offers_the_nearest() -> None:
    done = run("evaluat")
    assert done.returncode == 2
    assert "Did you mean 'eval'?" in done.stderr


def test_help_names_every_command_and_every_command_has_help() -> None:
    text = run("--help").stdout
    for name in COMMANDS:
        assert name in text
        assert run(name, "--help").returncode == 0


@pytest.mark.parametrize(
    "environ", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "20", "NO_COLOR": "1"}]
)
def test_any_terminal_will_do(environ: dict) -> None:
    for arguments in (
        ["--help"],
        ["plugins"],
        ["plugins", "show", "algorithm/grpo"],
        ["model", "list"],
        ["eval", "arithmétic…"],
    ):
        done = run(*arguments, **environ)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert "unexpected" not in done.stderr


def test_a_foreign_rllm_is_told(tmp_path) -> None:
    (tmp_path / "rllm").mkdir()
    (tmp_path / "rllm" / "__init__.py").write_text("")
    done = run("--version", PYTHONPATH=str(tmp_path), PYTHONSAFEPATH="1")
    assert done.returncode == 0
    assert "is another project's and hides ours" in done.stderr
    assert run("--version").stderr == ""


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_are_no_defect(closed) -> None:
    shut = " ".join(f"{descriptor}>&-" for descriptor in closed)
    command = f'exec "$0" -m rllm_core.cli plugins {shut}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], check=False, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (1 not in closed)
