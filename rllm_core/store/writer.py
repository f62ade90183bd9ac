"""The writer: one thread that owns the database connection.

Callers put operations into a queue and go on; the thread commits what has come together
every 50 ms, or at once when someone waits. What is committed is always a prefix of what was
put: after a failure nothing later is written, and every later call raises that failure.
"""

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from rllm_core.errors import RllmError, StoreError
from rllm_core.store.schema import explain

__all__ = ["Operation", "Writer"]

Operation = Callable[[sqlite3.Connection], None]

COMMIT_SECONDS = 0.05
LARGEST_COMMIT = 256
LARGEST_QUEUE = 4096
"""Beyond this a caller waits: a disk slower than the run must not fill the memory."""
CLOSE_SECONDS = 120.0


class _Last(Future[None]):
    """The barrier after which the thread ends."""


class Writer:
    """Runs operations in order, in transactions, in a thread of its own."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._queue: queue.Queue[Operation | Future[None]] = queue.Queue(LARGEST_QUEUE)
        self._failure: RllmError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="rllm-store", daemon=True)
        self._thread.start()

    def put(self, operation: Operation) -> None:
        """Queue an operation; raises the failure of an earlier one."""
        self.check()
        self._queue.put(operation)

    def barrier(self) -> "Future[None]":
        """A future that is done when everything put so far is on disk, or has failed."""
        self.check()
        future: Future[None] = Future()
        self._queue.put(future)
        return future

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreError(f"the run in {self._path.parent} has been closed")

    def close(self) -> None:
        """Write what is queued, end the thread, close the database; safe to call twice.

        Raises the failure where something put could not be written.
        """
        if self._closed:
            return
        self._closed = True
        future = _Last()
        self._queue.put(future)
        try:
            future.result(CLOSE_SECONDS)
        finally:
            self._thread.join(CLOSE_SECONDS)
            self._connection.close()

    def _run(self) -> None:
        waiting: Future[None] | None = None
        while not isinstance(waiting, _Last):
            operations, waiting = self._collect()
            if self._failure is None:
                self._commit(operations)
            if waiting is not None:
                _settle(waiting, self._failure)

    def _collect(self) -> "tuple[list[Operation], Future[None] | None]":
        """The operations of the next transaction, and who waits for it."""
        operations: list[Operation] = []
        deadline = None
        while len(operations) < LARGEST_COMMIT:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                break
            if isinstance(item, Future):
                return operations, item
            operations.append(item)
            deadline = deadline or time.monotonic() + COMMIT_SECONDS
        return operations, None

    def _commit(self, operations: Sequence[Operation]) -> None:
        """All in one transaction; if that fails, one by one up to the one that fails."""
        if not operations or self._attempt(operations) is None:
            return
        for operation in operations:
            failure = self._attempt([operation])
            if failure is not None:
                self._failure = failure
                return

    def _attempt(self, operations: Sequence[Operation]) -> RllmError | None:
        try:
            with self._transaction():
                for operation in operations:
                    operation(self._connection)
        except RllmError as error:
            return error
        except Exception as error:  # noqa: BLE001 - callers wait on this thread: it must not die
            return explain(error, self._path)
        return None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have rolled back already
                self._connection.execute("ROLLBACK")
            raise


def _settle(future: "Future[None]", failure: RllmError | None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # whoever waited was cancelled
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
