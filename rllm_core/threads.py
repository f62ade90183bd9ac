"""Running synchronous user code beside the event loop.

Each call gets a thread of its own, so there are as many as there are calls at once, which
the run's concurrency bounds. They are daemons: a thread cannot be killed, and one that hangs
must hold up neither the next rollout (a fixed pool would run dry) nor the end of the program.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(
    function: Callable[..., T], *args: Any, abandoned: Callable[[], None] | None = None
) -> T:
    """Call a function in a thread and await its result, or its exception.

    When the awaiting task is cancelled, the thread is left to itself and `abandoned()` is
    called, so that its owner can count it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def work() -> None:
        setter: Callable[[Any], None]
        value: Any
        try:
            setter, value = future.set_result, context.run(function, *args)
        except StopIteration as error:  # a future refuses this one
            setter, value = future.set_exception, RuntimeError(f"StopIteration: {error}")
        except GeneratorExit as error:  # thrown into a coroutine it would close, not raise
            setter, value = future.set_exception, RuntimeError(f"GeneratorExit: {error}")
        except BaseException as error:  # noqa: BLE001 - handed to the awaiting task as it is
            setter, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, setter, value)

    name = getattr(function, "__name__", type(function).__name__)
    threading.Thread(target=work, name=f"rllm-{name}", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        if abandoned is not None and future.cancelled():
            abandoned()
        raise
