"""Reading a run, also while another process writes it.

Rows are fetched in pages, so that an iterator that is left half-way holds nothing open. A
reader sees what has been committed, at most some 50 ms behind the writer.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rllm_core.errors import ConfigError
from rllm_core.statistics import Attempt
from rllm_core.store.lock import is_locked
from rllm_core.store.records import FACTS, BatchRow, Event, read_attempt, read_episode
from rllm_core.store.schema import DATABASE, connect_reader, has_begun
from rllm_core.types import Episode

__all__ = ["CONFIG", "RunInfo", "RunReader"]

CONFIG = "config.toml"
PAGE = 64


@frozen
class RunInfo:
    """What a run is: identity, configuration, and where it stands.

    `status` is running, finished, failed or interrupted as the run itself left it, or killed
    where it says running but nobody writes it. `created` is in seconds since the epoch;
    `plugins` maps names to "package version".
    """

    id: str
    kind: str
    name: str | None
    directory: Path
    created: float
    status: str
    config_toml: str
    plugins: Mapping[str, str]


class RunReader:
    """A run directory, opened to read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / DATABASE
        try:
            if not has_begun(path):
                raise no_run(directory)
            self._reader = connect_reader(path)
        except sqlite3.Error as error:
            raise no_run(directory, error) from error

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self._reader.close()

    @property
    def info(self) -> RunInfo:
        """The run, as of now."""
        meta = dict(self._reader.execute("SELECT key, value FROM meta"))
        status = meta["status"]
        if status == "running" and not is_locked(self.directory):
            status = "killed"
        config = ""
        with contextlib.suppress(FileNotFoundError):
            config = (self.directory / CONFIG).read_text(encoding="utf-8")
        return RunInfo(
            id=meta["id"],
            kind=meta["kind"],
            name=json.loads(meta["name"]),
            directory=self.directory,
            created=float(meta["created"]),
            status=status,
            config_toml=config,
            plugins=json.loads(meta["plugins"]),
        )

    def summary(self) -> dict[str, Any]:
        """What the run said of itself last (`RunStore.set_summary`)."""
        row = self._reader.execute("SELECT value FROM meta WHERE key = 'summary'").fetchone()
        return dict(json.loads(row[0])) if row else {}

    def phases(self) -> list[str]:
        """The phases that have episodes, in the order they began."""
        rows = self._reader.execute(
            "SELECT phase FROM episodes GROUP BY phase ORDER BY MIN(key)"
        ).fetchall()
        return [phase for (phase,) in rows]

    def finished(self, phase: str) -> set[tuple[int, int]]:
        """(group, attempt) of the phase's episodes that ended without an error."""
        return set(
            self._reader.execute(
                'SELECT "group", attempt FROM episodes WHERE phase = ? AND error IS NULL', (phase,)
            )
        )

    def episodes(self, phase: str | None = None, group: int | None = None) -> Iterator[Episode]:
        """Episodes in the order they were put, whole."""
        for key, body in self._pages("key, body", phase, group):
            yield read_episode(self._reader, key, body)

    def attempts(self, phase: str | None = None, group: int | None = None) -> Iterator[Attempt]:
        """What statistics need of each episode, without reading its calls."""
        for _, *row in self._pages(f"key, {FACTS}", phase, group):
            yield read_attempt(row)

    def episode(self, ref: str) -> Episode:
        """The episode of this id, or of the one id that begins so; else ConfigError."""
        rows = self._reader.execute(
            "SELECT key, id, body FROM episodes WHERE substr(id, 1, ?) = ? ORDER BY id = ? DESC"
            " LIMIT 3",
            (len(ref), ref, ref),
        ).fetchall()
        if not rows:
            raise ConfigError(
                f"run {self.info.id} has no episode {ref!r}",
                remedy=f"`rllm runs show {self.info.id} --episodes` lists them",
            )
        key, found, body = rows[0]
        if len(rows) > 1 and found != ref:
            names = ", ".join(name for _, name, _ in rows)
            raise ConfigError(f"several episodes begin with {ref!r}: {names}, …")
        return read_episode(self._reader, key, body)

    def episode_ids(self, phase: str | None = None) -> Iterator[str]:
        """The ids alone, in the order the episodes were put."""
        return (name for _, name in self._pages("key, id", phase, None))

    def batches(self, since: int = 0) -> Iterator[BatchRow]:
        """The batch rows from step `since` on, in order."""
        rows = self._reader.execute(
            'SELECT step, version, sequences, "groups", credits, loss, optim FROM batches'
            " WHERE step >= ? ORDER BY step",
            (since,),
        ).fetchall()
        return map(BatchRow.of_row, rows)

    def metrics(self, phase: str = "train") -> list[tuple[int, dict[str, float]]]:
        """(step, values) of a phase, by step."""
        rows = self._reader.execute(
            'SELECT step, "values" FROM metrics WHERE phase = ? ORDER BY step', (phase,)
        )
        return [(step, json.loads(values)) for step, values in rows]

    def events(self) -> Iterator[Event]:
        """Everything noteworthy that happened, in order."""
        rows = self._reader.execute(
            "SELECT time, kind, message, data FROM events ORDER BY key"
        ).fetchall()
        return (Event(time, kind, message, json.loads(data)) for time, kind, message, data in rows)

    def checkpoints(self) -> list[tuple[int, Path]]:
        """(step, directory) of the complete checkpoints, by step."""
        rows = self._reader.execute("SELECT step, directory FROM checkpoints ORDER BY step")
        return [(step, self.directory / relative) for step, relative in rows]

    def _pages(
        self, columns: str, phase: str | None, group: int | None
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of episodes by key, which must be the first column."""
        query = (
            f"SELECT {columns} FROM episodes WHERE key > :key"  # noqa: S608 - our own columns
            " AND (:phase IS NULL OR phase = :phase)"
            ' AND (:group IS NULL OR "group" = :group) ORDER BY key LIMIT :page'
        )
        values = {"key": -1, "phase": phase, "group": group, "page": PAGE}
        while rows := self._reader.execute(query, values).fetchall():
            yield from rows
            values["key"] = rows[-1][0]


def no_run(directory: Path, error: Exception | None = None) -> ConfigError:
    """The error for a directory without a readable run."""
    if error is not None:
        return ConfigError(
            f"the run in {directory} cannot be read: {error}",
            remedy="if the disk is full or read-only, free it; else the directory is damaged",
        )
    return ConfigError(
        f"there is no run in {directory}", remedy="`rllm runs list` shows the runs there are"
    )
