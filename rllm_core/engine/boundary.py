"""Awaiting code of users and plugins, which must not end the run whatever it raises."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["guarded", "told"]

T = TypeVar("T")


async def guarded(awaitable: Awaitable[T]) -> T:
    """Its result or exception; what is meant for the whole process becomes a RuntimeError.

    An agent that calls `sys.exit`, or that cancels itself, has failed; it has not asked the run
    to end. Ctrl-C and a cancellation of the run itself pass through.
    """
    try:
        return await awaitable
    except (Exception, KeyboardInterrupt):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("it cancelled itself (asyncio.CancelledError)") from error
    except BaseException as error:
        raise RuntimeError(f"it raised {told(error)}") from error


def told(error: BaseException) -> str:
    """Type and text of an exception, also of one whose `__str__` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - part of the boundary: users write these methods
        text = "(its message cannot be printed)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
