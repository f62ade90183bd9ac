"""Writing a run: the directory, and everything that is put into its database.

    config.toml     the resolved configuration; runs again as it is
    run.db          episodes, tokens, batch rows, metrics, events (`rllm_core.store.schema`)
    checkpoints/    one directory a saved step
    logs/           what workers print
    writer.lock     who is writing it

All methods but the awaited ones return at once: a thread commits what was put. A failure
(a full disk) is raised by the next call.
"""

import asyncio
import errno
import shutil
import sqlite3
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from rllm_core.errors import ConfigError, StoreError
from rllm_core.store.lock import LOCK, WriterLock
from rllm_core.store.reader import CONFIG, RunReader
from rllm_core.store.records import BatchRow, dump, insert_episode
from rllm_core.store.schema import DATABASE, connect_writer, create_tables, explain, has_begun
from rllm_core.store.writer import Writer
from rllm_core.types import Episode

__all__ = ["STATUSES", "RunStore"]

STATUSES = ("running", "finished", "failed", "interrupted")
FLUSH_SECONDS = 120.0


class RunStore(RunReader):
    """A run directory, opened to write by the one process that may."""

    def __init__(self, directory: Path, lock: WriterLock, connection: sqlite3.Connection) -> None:
        super().__init__(directory)
        self._lock = lock
        self._writer = Writer(connection, directory / DATABASE)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        run_id: str,
        kind: str,
        name: str | None,
        config_toml: str,
        plugins: Mapping[str, str],
    ) -> Self:
        """Make a run. ConfigError where the directory holds one, or anything else.

        `kind` is "eval" or "train"; `plugins` maps names to "package version".
        """
        lock = _take_lock(directory)
        identity = {
            "id": run_id,
            "kind": kind,
            "name": dump(name),
            "created": repr(time.time()),
            "status": "running",
            "plugins": dump(dict(plugins)),
        }
        try:
            _refuse_begun(directory)
            (directory / CONFIG).write_text(config_toml, encoding="utf-8")
            (directory / "logs").mkdir(mode=0o700, exist_ok=True)
            create_tables(directory / DATABASE, identity)
            return cls(directory, lock, connect_writer(directory / DATABASE))
        except (OSError, sqlite3.Error) as error:
            lock.release()
            raise explain(error, directory / DATABASE) from error
        except ConfigError:
            lock.release()
            raise

    @classmethod
    def resume(cls, directory: Path) -> Self:
        """Go on writing a run; ConfigError where there is none, or another process writes it.

        Removes what a killed run left of a checkpoint that it was still saving.
        """
        RunReader(directory).close()
        lock = _take_lock(directory)
        try:
            store = cls(directory, lock, connect_writer(directory / DATABASE))
        except sqlite3.Error as error:
            lock.release()
            raise explain(error, directory / DATABASE) from error
        store._remove_unfinished_checkpoints()
        store.set_status("running")
        return store

    @classmethod
    def read(cls, directory: Path) -> RunReader:
        """Open a run to read, also while another process writes it."""
        return RunReader(directory)

    def add_episode(self, phase: str, group: int, attempt: int, episode: Episode) -> None:
        """Put an episode in its place; a later one for the same place replaces it."""
        self._writer.put(
            partial(insert_episode, phase=phase, group=group, attempt=attempt, episode=episode)
        )

    async def add_batch(self, step: int, row: BatchRow) -> None:
        """Write the batch row of a step; returns when it is on disk.

        The same row again is fine (a resumed run); a different one for the step is a
        StoreError: what was trained on cannot change.
        """
        if row.step != step:
            raise ValueError(f"the batch row is of step {row.step}, not {step}")
        self._writer.put(partial(_insert_batch, row=row))
        await self.flush()

    def add_metrics(self, step: int, values: Mapping[str, float], phase: str = "train") -> None:
        """Put the numbers of a step; they replace those put before."""
        self._execute("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?)", phase, step, dump(values))

    def add_event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Note something for the run's account, which reads `3 retried` for kind "retried"."""
        self._execute(
            "INSERT INTO events VALUES (NULL, ?, ?, ?, ?)",
            time.time(),
            kind,
            message.encode("utf-8", "replace").decode(),
            dump(data or {}),
        )

    def set_status(self, status: str) -> None:
        """Say where the run stands: one of `STATUSES`."""
        if status not in STATUSES:
            raise ValueError(f"a run's status is one of {', '.join(STATUSES)}, not {status!r}")
        self._set_meta("status", status)

    def set_config(self, config_toml: str) -> None:
        """Keep the configuration that the run goes on with; StoreError on a full disk."""
        path, fresh = self.directory / CONFIG, self.directory / f"{CONFIG}.new"
        try:
            fresh.write_text(config_toml, encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise explain(error, path) from error

    def set_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep the run's own summary: a JSON document."""
        self._set_meta("summary", dump(summary))

    def checkpoint_dir(self, step: int) -> Path:
        """The directory to save a step's checkpoint to; it does not exist yet."""
        path = self.directory / _checkpoint(step)
        if any(saved == step for saved, _ in self.checkpoints()):
            raise StoreError(f"the checkpoint of step {step} has been saved: {path}")
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return path

    def add_checkpoint(self, step: int, directory: Path) -> None:
        """List the checkpoint saved in `directory`, from `checkpoint_dir`, as complete."""
        if not directory.is_dir():
            raise StoreError(f"the checkpoint of step {step} is not there: {directory}")
        relative = str(directory.relative_to(self.directory))
        self._execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", step, relative)

    def prune(self, keep: int) -> None:
        """Remove all but the last `keep` checkpoints: first the rows, then the files."""
        surplus: list[Path] = []

        def unlist(connection: sqlite3.Connection) -> None:
            rows = connection.execute(
                "SELECT step, directory FROM checkpoints ORDER BY step DESC LIMIT -1 OFFSET ?",
                (keep,),
            ).fetchall()
            surplus[:] = [self.directory / relative for _, relative in rows]
            connection.executemany(
                "DELETE FROM checkpoints WHERE step = ?", [(step,) for step, _ in rows]
            )

        def remove(committed: "Future[None]") -> None:
            if committed.exception() is None:
                for path in surplus:
                    shutil.rmtree(path, ignore_errors=True)

        self._writer.put(unlist)
        self._writer.barrier().add_done_callback(remove)

    async def flush(self) -> None:
        """Wait until everything put so far is on disk; raises what went wrong."""
        done = asyncio.wrap_future(self._writer.barrier())
        try:
            await asyncio.wait_for(done, FLUSH_SECONDS)
        except TimeoutError:
            raise StoreError(
                f"the disk of {self.directory} has taken nothing for {FLUSH_SECONDS:.0f} s",
                remedy="check the disk, then run the same command with --resume",
            ) from None

    def close(self) -> None:
        """Write what is queued and give the run back; raises what could not be written."""
        try:
            self._writer.close()
        finally:
            super().close()
            self._lock.release()

    def _execute(self, query: str, *values: Any) -> None:
        self._writer.put(lambda connection: (connection.execute(query, values), None)[1])

    def _set_meta(self, key: str, value: str) -> None:
        self._execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def _remove_unfinished_checkpoints(self) -> None:
        complete = {path for _, path in self.checkpoints()}
        for path in (self.directory / "checkpoints").glob("step-*"):
            if path not in complete:
                shutil.rmtree(path, ignore_errors=True)


def _take_lock(directory: Path) -> WriterLock:
    """The lock of a directory, which is made where there is none."""
    try:
        _refuse_foreign(directory)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return WriterLock.take(directory)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise explain(error, directory) from error
        raise ConfigError(
            f"the run directory {directory} cannot be written: {error.strerror}",
            remedy="choose another with --run-dir, or set RLLM_HOME",
        ) from error


def _checkpoint(step: int) -> str:
    return f"checkpoints/step-{step:06d}"


def _insert_batch(connection: sqlite3.Connection, row: BatchRow) -> None:
    columns = 'step, version, sequences, "groups", credits, loss, optim'
    there = connection.execute(
        f"SELECT {columns} FROM batches WHERE step = ?",  # noqa: S608 - our own columns
        (row.step,),
    ).fetchone()
    if there is None:
        connection.execute(
            f"INSERT INTO batches ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            row.row(),
        )
    elif there != row.row():
        raise StoreError(f"step {row.step} has been trained on another batch than the one put now")


def _refuse_begun(directory: Path) -> None:
    """ConfigError where the directory holds a run.

    What a run leaves that was killed before it began is no run, and is written over.
    """
    if has_begun(directory / DATABASE):
        raise ConfigError(
            f"{directory} already holds a run",
            remedy="use --resume to go on with it, or another --run-dir",
        )


def _refuse_foreign(directory: Path) -> None:
    """ConfigError where the directory holds files that are not of a run; nothing is touched."""
    if (directory / DATABASE).is_file() or not directory.is_dir():
        return
    ours = {LOCK, CONFIG, "logs", DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}
    foreign = sorted(path.name for path in directory.iterdir() if path.name not in ours)
    if foreign:
        raise ConfigError(
            f"{directory} is not empty and holds no run (it holds {foreign[0]!r})",
            remedy="choose an empty or new directory with --run-dir",
        )
