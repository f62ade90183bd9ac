"""The run's database: its tables, and how it is opened.

SQLite in WAL mode: one writer, any number of readers in other processes, and a commit that
survives SIGKILL and power loss (`synchronous = FULL`; commits are batched, so it is cheap).
A column beside a JSON body repeats what queries need; the body is what is read back.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from rllm_core.errors import ConfigError, StoreError

__all__ = [
    "DATABASE",
    "SCHEMA_VERSION",
    "connect_reader",
    "connect_writer",
    "create_tables",
    "explain",
    "has_begun",
]

DATABASE = "run.db"
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE episodes (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    phase TEXT NOT NULL, "group" INTEGER NOT NULL, attempt INTEGER NOT NULL,
    task TEXT NOT NULL, value REAL, ungraded TEXT, stop TEXT NOT NULL,
    error TEXT, message TEXT NOT NULL, calls INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    seconds REAL NOT NULL, truncated INTEGER NOT NULL, untrainable INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (phase, "group", attempt)
);
CREATE TABLE trajectories (
    episode INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
    position INTEGER NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (episode, position)
) WITHOUT ROWID;
CREATE TABLE steps (
    key INTEGER PRIMARY KEY,
    episode INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
    trajectory INTEGER NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL,
    context_ids BLOB NOT NULL, output_ids BLOB NOT NULL, logprobs BLOB NOT NULL,
    UNIQUE (episode, trajectory, position)
);
CREATE TABLE batches (
    step INTEGER PRIMARY KEY, version INTEGER NOT NULL, sequences TEXT NOT NULL,
    "groups" TEXT NOT NULL, credits BLOB NOT NULL, loss TEXT NOT NULL, optim TEXT NOT NULL
);
CREATE TABLE metrics (
    phase TEXT NOT NULL, step INTEGER NOT NULL, "values" TEXT NOT NULL,
    PRIMARY KEY (phase, step)
) WITHOUT ROWID;
CREATE TABLE events (
    key INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL,
    message TEXT NOT NULL, data TEXT NOT NULL
);
CREATE TABLE checkpoints (step INTEGER PRIMARY KEY, directory TEXT NOT NULL);
"""


def create_tables(path: Path, identity: Mapping[str, str]) -> None:
    """Make the database of a new run.

    Tables, identity and `user_version` appear in one transaction: a run that is killed in
    here has not begun (`has_begun`).
    """
    connection = _connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in filter(str.strip, TABLES.split(";")):
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", identity.items())
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        connection.close()


def has_begun(path: Path) -> bool:
    """Whether there is a run's database at all; raises sqlite3.Error for what is none."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    connection = _open(path)
    try:
        return _version(connection) != 0
    finally:
        connection.close()


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the database for its one writer."""
    connection = _connect(path)
    _check_version(connection, path)
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the database to read, also while another process writes it."""
    connection = _open(path)
    _check_version(connection, path)
    return connection


def _open(path: Path) -> sqlite3.Connection:
    """A connection that only reads.

    Reading a WAL database needs a small file beside it. Where that cannot be made (a
    read-only medium, a full disk) and no log is left to read, the file is read as it lies.
    """
    has_log = path.with_name(path.name + "-wal").exists()
    try:
        return _open_as(path, "mode=ro")
    except sqlite3.OperationalError:
        if has_log:
            raise
        return _open_as(path, "immutable=1")


def _open_as(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        connection.close()
        raise ConfigError(
            f"{path} was written by a newer rllm-core (its format is {version}; this one"
            f" reads up to {SCHEMA_VERSION})",
            remedy="upgrade: pip install --upgrade rllm-core",
        )


def explain(error: Exception, path: Path) -> StoreError:
    """What went wrong with the database, in a sentence, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or "No space left" in str(error):
        return StoreError(
            f"the disk is full: {path} takes no more; everything up to here is kept",
            remedy="free some space there, then run the same command with --resume",
        )
    return StoreError(
        f"the run's database {path} cannot be written: {type(error).__name__}: {error};"
        " everything up to here is kept",
        remedy="check the disk and the permissions, then run the same command with --resume",
    )
