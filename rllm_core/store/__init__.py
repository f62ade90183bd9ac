"""The run store: one directory a run, with a database that one process writes.

`RunStore.create` and `resume` write a run, `RunStore.read` (a `RunReader`) reads one, also
while it is being written. What was committed survives SIGKILL, a full disk and power loss.
"""

from rllm_core.store.find import find_run, list_runs, new_run_id, runs_directory
from rllm_core.store.reader import RunInfo, RunReader
from rllm_core.store.records import BatchRow, Event
from rllm_core.store.run import RunStore

__all__ = [
    "BatchRow",
    "Event",
    "RunInfo",
    "RunReader",
    "RunStore",
    "find_run",
    "list_runs",
    "new_run_id",
    "runs_directory",
]
