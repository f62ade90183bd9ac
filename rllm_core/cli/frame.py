"""The frame around every command: errors become sentences, and exit codes mean something.

0    it worked                       2    a setting, name or combination that cannot work
1    the run failed                  70   a defect of ours, or of a plugin
130  stopped by Ctrl-C               141  the reader of our output went away
"""

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from rllm_core.cli.streams import open_output
from rllm_core.errors import ConfigError, RllmError

__all__ = ["describe_error", "main", "run_command"]

EXIT_FAILED, EXIT_CONFIG, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_PIPE = 1, 2, 70, 130, 141
INDENT = "       "
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script: run a command and exit with its code."""
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911 - one a case
    """Run a command line (default: the process's) and return its exit code."""
    open_output()
    try:
        _warn_of_shadow()
        return _invoke(arguments)
    except RllmError as error:
        return _failed(error, EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except OSError as error:
        return _disk(error)
    except Exception as error:  # noqa: BLE001 - the outermost boundary
        return _defect(error)


def _invoke(arguments: Sequence[str] | None) -> int:
    from rllm_core.cli.group import rllm

    args = None if arguments is None else list(arguments)
    result = rllm.main(args, prog_name="rllm", standalone_mode=False)
    sys.stdout.flush()
    return result if type(result) is int else 0


def describe_error(error: RllmError) -> str:
    """An error as it is printed: `error: …`, the remedy indented below; one after another."""
    parts = getattr(error, "problems", (error,))
    return "\n".join(_one(part) for part in parts)


def _one(error: RllmError) -> str:
    lines = [*error.message.splitlines(), *(error.remedy or "").splitlines()]
    first, *rest = lines or [type(error).__name__]
    return "\n".join([f"error: {first}", *(INDENT + line for line in rest)])


def _failed(error: RllmError, code: int) -> int:
    click.echo(describe_error(error), err=True)
    if os.environ.get("RLLM_DEBUG"):
        _traceback(error, sys.stderr)
    return code


def _disk(error: OSError) -> int:
    """A full or read-only disk or a name too long is nobody's defect; any other error is."""
    if error.errno == errno.ENAMETOOLONG:
        click.echo(f"error: {error.strerror}: {error.filename!s:.100}", err=True)
        click.echo(f"{INDENT}a name on a disk has at most 255 bytes", err=True)
        return EXIT_CONFIG
    if error.errno not in FULL:
        return _defect(error)
    place = f": {error.filename}" if error.filename else ""
    click.echo(f"error: {error.strerror}{place}", err=True)
    click.echo(
        f"{INDENT}what was finished is kept; make room (or set RLLM_HOME) and resume", err=True
    )
    return EXIT_FAILED


def _defect(error: Exception) -> int:
    """What nobody foresaw: one line, and where the traceback is."""
    text = " ".join(str(error).split())
    click.echo(f"error: unexpected {type(error).__name__}: {text:.300}", err=True)
    if os.environ.get("RLLM_DEBUG"):
        _traceback(error, sys.stderr)
    else:
        place = _crash_file(error)
        told = f"the traceback is in {place}; " if place else ""
        click.echo(f"{INDENT}{told}RLLM_DEBUG=1 shows it", err=True)
    return EXIT_DEFECT


def _traceback(error: BaseException, stream: "io.TextIOBase | object") -> None:
    import traceback

    traceback.print_exception(error, file=stream)  # type: ignore[arg-type]


def _crash_file(error: Exception) -> str | None:
    import time

    from rllm_core.config.home import writable_home

    try:
        folder = writable_home("logs")
        path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
            _traceback(error, stream)
    except (OSError, ConfigError):
        return None
    return str(path)


def _warn_of_shadow() -> None:
    from rllm_core.cli.shadow import foreign_rllm

    place = foreign_rllm()
    if place is not None:
        click.echo(
            f"warning: the package `rllm` in {place} is another project's and hides ours\n"
            f"{INDENT}  `import rllm` is not rllm-core's: pip uninstall rllm, "
            "then pip install --force-reinstall --no-deps rllm-core",
            err=True,
        )
