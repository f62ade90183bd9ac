"""The process's standard streams: there even where they were closed, and kept from being closed."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

__all__ = ["lent_output", "open_output"]


def open_output() -> None:
    """Make the streams usable: closed ones lead nowhere, an odd encoding escapes what it lacks."""
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    if sys.stdout is None:  # closed before Python started (`>&-`)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _occupy(descriptor: int) -> None:
    """Open nothing in the place of a closed descriptor.

    Else the next file to be opened, a database perhaps, would be what children print to.
    """
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword


@contextlib.contextmanager
def lent_output() -> Iterator[TextIO]:
    """Give code that is not ours streams of its own to print to; yields our standard output.

    Agents run in this process, and some close `sys.stdout` or put something else in its place.
    What they get leads to the same places; closing it leaves ours open.
    """
    ours = sys.stdout, sys.stderr
    lent = sys.stdout, sys.stderr = _lent(sys.stdout), _lent(sys.stderr)
    try:
        yield ours[0]
    finally:
        sys.stdout, sys.stderr = ours
        for stream in lent:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def _lent(stream: TextIO) -> TextIO:
    """Another stream to the same place; a stream that is no file is passed on as it is."""
    try:
        stream.flush()
        return open(
            stream.fileno(),
            "w",
            buffering=1,
            encoding=stream.encoding,
            errors=stream.errors,
            closefd=False,
        )
    except (OSError, ValueError, AttributeError):
        return stream
