"""Which of a benchmark's tasks a run uses: by id, after skipping, shuffled, at most so many."""

import difflib
import itertools
import random
from collections.abc import Iterable, Sequence

from rllm_core.errors import ConfigError
from rllm_core.types import Task

__all__ = ["select"]


def select(
    tasks: Iterable[Task],
    *,
    max: int | None = None,  # noqa: A002 - the option's own name
    skip: int = 0,
    ids: Sequence[str] = (),
    shuffle: bool = False,
    seed: int = 0,
    table: str = "benchmark",
) -> list[Task]:
    """The tasks that remain, in this order: `ids` kept, shuffled, `skip` left out, `max` taken.

    Without ids and shuffling only the tasks that are wanted are read. Raises ConfigError for an
    id that no task has, for two tasks of one id, and where nothing remains; `table` is what the
    messages call the settings' table.
    """
    if max is not None and max < 1:
        raise ConfigError(f"{table}.max must be at least 1, not {max}")
    if skip < 0:
        raise ConfigError(f"{table}.skip must be at least 0, not {skip}")
    stop = None if max is None else skip + max
    lazy = not (ids or shuffle)
    found = list(itertools.islice(tasks, stop) if lazy else tasks)
    _check_unique(found)
    total = len(found)
    if ids:
        found = _by_id(found, ids, table)
    if shuffle:
        random.Random(seed).shuffle(found)  # noqa: S311 - an order, not a secret
    chosen = found[skip:stop]
    if not chosen:
        raise _nothing_left(total, skip, table)
    return chosen


def _nothing_left(total: int, skip: int, table: str) -> ConfigError:
    if total == 0:
        return ConfigError(
            f"the {table} has no tasks in this split", remedy=f"choose another with {table}.split"
        )
    return ConfigError(
        f"no task is left: {table}.skip={skip} leaves out all {total}",
        remedy=f"skip fewer than {total}",
    )


def _check_unique(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise ConfigError(
                f"two tasks have the id {task.id!r}",
                remedy="ids tell tasks apart when a run is resumed: each needs one of its own",
            )
        seen.add(task.id)


def _by_id(tasks: Sequence[Task], ids: Sequence[str], table: str) -> list[Task]:
    """The tasks of these ids, in the order of the ids."""
    known = {task.id: task for task in tasks}
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=3) or list(known)[:3]
            raise ConfigError(
                f"{table}.ids: no task has the id {wanted!r}",
                remedy=f"near it, or first, are: {', '.join(near)}",
            )
    return [known[wanted] for wanted in dict.fromkeys(ids)]
