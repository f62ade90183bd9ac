"""The writer's lock: one process at a time writes a run.

The operating system holds it (flock), so that a killed writer leaves none behind. The file
says who holds it. A child made by fork without exec would share the lock: workers are
started by spawn or as programs.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Self

from rllm_core.errors import ConfigError

__all__ = ["LOCK", "WriterLock", "is_locked"]

LOCK = "writer.lock"
PATIENCE_SECONDS = 0.5
"""A reader that looks whether the lock is free holds it for an instant."""


class WriterLock:
    """The lock of a run directory, held until `release` or the process's end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, directory: Path) -> Self:
        """Take the lock; ConfigError names the process that has it."""
        lock = cls(os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            lock._wait(directory)
        except BaseException:
            lock.release()
            raise
        return lock

    def _wait(self, directory: Path) -> None:
        assert self._descriptor is not None
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not _try_lock(self._descriptor):
            if time.monotonic() > give_up:
                raise _held(directory)
            time.sleep(0.02)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Give it back; safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(directory: Path) -> bool:
    """Whether some process is writing this run."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(directory: Path) -> ConfigError:
    try:
        holder: dict[str, Any] = json.loads((directory / LOCK).read_text())
        who = f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError):  # it is writing its name this moment
        who = "another process"
    return ConfigError(
        f"{who} is writing the run in {directory}",
        remedy="wait for it or stop it, or choose another directory with --run-dir",
    )
