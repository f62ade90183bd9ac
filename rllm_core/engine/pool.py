"""Many rollouts at once, a bounded number of them at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

__all__ = ["bounded", "settle"]

T = TypeVar("T")
R = TypeVar("R")


async def bounded(
    run: Callable[[T], Awaitable[R]], items: Iterable[T], limit: int
) -> AsyncIterator[R]:
    """Results of `run` over the items as they end, at most `limit` at a time.

    Items are taken lazily, so that a million tasks cost no memory. Leaving the iteration
    early cancels what runs and waits for its clean-up.
    """
    source = iter(items)
    running: set[asyncio.Task[R]] = set()
    try:
        while True:
            for item in source:
                running.add(asyncio.ensure_future(run(item)))
                if len(running) >= limit:
                    break
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        await settle(running)


async def settle(tasks: Iterable[asyncio.Future[R]]) -> None:
    """Cancel tasks and wait until each has cleaned up after itself."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(BaseException):
            await task
