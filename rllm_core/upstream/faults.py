"""Faults of a worker that say nothing about the request: another try, or another worker, may do."""

from rllm_core.errors import ModelError

__all__ = ["WorkerFault"]


class WorkerFault(ModelError):  # noqa: N818 - a fault, which the next try may not have
    """A worker refused a connection, cut it, or answered 429 or 5xx.

    `unwell` says that it should be left alone for a while: `retry_after` seconds, if it said how
    long. A plain 500 is not that: the request may have been its cause.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        unwell: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.unwell = unwell
        self.retry_after = retry_after
