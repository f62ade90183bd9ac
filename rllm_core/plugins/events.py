"""Event hooks: telling the observers of a run what happened, without trusting them.

Events are queued and delivered in order by one thread of their own, so that a slow tracker
never holds the event loop. Each observer is called alone: one that raises is reported, and
after three failures it is left out for the rest of the run; the others notice nothing.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from rllm_core import hookspecs

__all__ = ["MAX_FAILURES", "Events"]

MAX_FAILURES = 3

logger = logging.getLogger("rllm.plugins")


class _Manager(pluggy.PluginManager):
    """Takes methods that bear an event's name, with or without the `@hookimpl` mark."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        marked = super().parse_hookimpl_opts(plugin, name)
        event = name.startswith("rllm_") and getattr(hookspecs, name, None) is not None
        if marked is None and event and callable(getattr(plugin, name, None)):
            return pluggy.HookimplOpts(
                wrapper=False,
                hookwrapper=False,
                optionalhook=False,
                tryfirst=False,
                trylast=False,
                specname=None,
            )
        return marked


class _Observer:
    def __init__(self, label: str, plugin: Any) -> None:
        self.label = label
        self.failures = 0
        self.manager = _Manager("rllm")
        self.manager.add_hookspecs(hookspecs)
        self.manager.register(plugin, name=label)
        self.manager.check_pending()


class Events:
    """The observers of one run, and the thread that tells them.

    `observers` are trackers and plugin modules, called in this order. `problems` collects one
    sentence for each failure.
    """

    def __init__(self, observers: Sequence[Any]) -> None:
        self.problems: list[str] = []
        self._observers = [_Observer(_label(each, i), each) for i, each in enumerate(observers)]
        self._queue: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if self._observers:
            self._thread = threading.Thread(target=self._deliver, name="rllm-events", daemon=True)
            self._thread.start()

    def call(self, event: str, **facts: Any) -> None:
        """Queue an event (`rllm_episode_finished`, …); returns at once, raises nothing."""
        if self._thread is not None:
            self._queue.put((event, facts))

    async def close(self, within: float = 30.0) -> None:
        """Wait until every event is delivered, at most `within` seconds."""
        if self._thread is None:
            return
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, within)
        if self._thread.is_alive():
            self._report(f"an observer hangs; its last events were given up after {within:g} s")
        self._thread = None

    def _deliver(self) -> None:
        while (item := self._queue.get()) is not None:
            event, facts = item
            for observer in self._observers:
                if observer.failures < MAX_FAILURES:
                    self._tell(observer, event, facts)

    def _tell(self, observer: _Observer, event: str, facts: Mapping[str, Any]) -> None:
        try:
            getattr(observer.manager.hook, event)(**facts)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: observers are guests
            observer.failures += 1
            off = "; it is switched off" if observer.failures == MAX_FAILURES else ""
            what = f"{type(error).__name__}: {error}"
            self._report(f"{observer.label} failed in {event}: {what}{off}")

    def _report(self, sentence: str) -> None:
        self.problems.append(sentence)
        logger.warning("%s", sentence)


def _label(observer: Any, position: int) -> str:
    name = getattr(observer, "__name__", None) or type(observer).__name__
    return f"{name}#{position + 1}"
