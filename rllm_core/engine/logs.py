"""A run's log file, and the lines of it that a person should see at once.

Everything under the logger "rllm" goes to `logs/run.log`. Warnings, and what backends say of
themselves (downloads, memory), also go to the observer.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rllm_core.engine.observer import Observer

__all__ = ["logging_to"]


class _Notes(logging.Handler):
    """Hands a message to the observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(logging.INFO)
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        """Backends may speak at INFO, everyone else at WARNING."""
        if record.levelno >= logging.WARNING or record.name.startswith("rllm.backend"):
            self._observer.note(record.getMessage())


@contextmanager
def logging_to(file: Path, observer: Observer) -> Iterator[None]:
    """Send the log there for as long as a run is open."""
    logger = logging.getLogger("rllm")
    before = logger.level, logger.propagate
    written = logging.FileHandler(file, encoding="utf-8", delay=True)
    written.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers = (written, _Notes(observer))
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
