"""The worker process: `python -m rllm_backend_local.worker FD`.

One thread reads requests; the main thread does all computing. It executes what arrived in
order, then gives every live completion one token, and so on. It ends when the other end of
its socket is gone, however that happened: a killed parent leaves no worker behind.
"""

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rllm_backend_local.frames import Refusal, pack, receive
from rllm_backend_local.options import Options
from rllm_core.errors import BackendError, RllmError

__all__ = ["Worker", "main"]

_QUIET_S = 0.004
_GATHER_S = 0.04
"""An idle sampler waits until no request came for `_QUIET_S`, at most `_GATHER_S`, so that a
group whose calls arrive one by one over HTTP is one batch."""


class Worker:
    """The model of this process and the requests made of it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.inbox: queue.SimpleQueue[tuple[int, str, tuple[Any, ...]]] = queue.SimpleQueue()
        self.loaded: Any = None
        self.trainer: Any = None
        self.sampler: Any = None

    def run(self) -> None:
        """Serve until the other end is gone."""
        import torch

        self.send(0, "ready", {"torch": torch.__version__, "threads": torch.get_num_threads()})
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            if self.sampler is None or not self.sampler.busy:
                self._execute(*self.inbox.get())
                self._gather()
            while not self.inbox.empty():
                self._execute(*self.inbox.get())
            if self.sampler is not None and self.sampler.busy:
                self._step()

    def send(self, call: int, kind: str, value: Any) -> None:
        """One message to the parent."""
        self.connection.sendall(pack((call, kind, value)))

    def load(self, source: Any, options: Options) -> dict[str, Any]:
        """Read a model; what the parent must know of it."""
        from rllm_backend_local.loading import load
        from rllm_backend_local.sampler import Sampler
        from rllm_backend_local.trainer import Trainer

        loaded = load(source, options)
        self.loaded = loaded
        self.trainer = Trainer(
            loaded.model, loaded.base, loaded.bf16, options.micro_tokens, loaded.packs
        )
        self.sampler = Sampler(
            loaded.engine, loaded.context, options.max_rows, loaded.stops, options.seed
        )
        self.send(0, "log", loaded.log)
        return {"context_window": loaded.context, "stops": sorted(loaded.stops)}

    def forward(self, batch: Any) -> Any:
        """Logprobs under the trainer's weights."""
        return self.trainer.forward(batch)

    def forward_backward(self, batch: Any, loss: Any) -> Any:
        """Accumulate gradients."""
        return self.trainer.forward_backward(batch, loss)

    def optim_step(self, params: Any) -> Any:
        """One optimizer step."""
        return dict(self.trainer.optim_step(params))

    def publish(self, version: int) -> None:
        """Let the sampler take over the trainer's weights under this version."""
        self.sampler.engine.refresh()
        self.sampler.version = version

    def score(self, ids: list[int]) -> list[float]:
        """Logprobs of a prompt under the published weights."""
        scores: list[float] = self.sampler.engine.score(ids)
        return scores

    def save(self, directory: str) -> None:
        """Write a checkpoint."""
        from rllm_backend_local import checkpoint

        checkpoint.save(self.trainer, self.sampler, Path(directory))

    def restore(self, directory: str) -> None:
        """Read a checkpoint."""
        from rllm_backend_local import checkpoint

        checkpoint.load(self.trainer, self.sampler, Path(directory))

    def export(self, directory: str) -> None:
        """Write the weights for others."""
        from rllm_backend_local import checkpoint

        checkpoint.export(self.loaded, Path(directory))

    def _receive(self) -> None:
        while True:
            try:
                self.inbox.put(receive(self.connection))
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone or done; nothing here outlives it

    def _gather(self) -> None:
        end = time.monotonic() + _GATHER_S
        while self.sampler is not None and self.sampler.waiting and time.monotonic() < end:
            try:
                self._execute(*self.inbox.get(timeout=_QUIET_S))
            except queue.Empty:
                return

    def _execute(self, call: int, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            if method == "sample":
                self.sampler.add(call, *arguments)
            elif method == "abort":
                self.sampler.abort(*arguments)
            else:
                self.send(call, "result", getattr(self, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - the boundary: the parent raises it again
            self.send(call, "error", _refusal(error))

    def _step(self) -> None:
        try:
            pieces = self.sampler.step()
        except Exception as error:  # noqa: BLE001 - the boundary: the parent raises it again
            for call in self.sampler.fail():
                self.send(call, "error", _refusal(error))
        else:
            self.send(0, "pieces", pieces)


def _refusal(error: Exception) -> Refusal:
    detail = traceback.format_exc()
    if isinstance(error, RllmError):
        return Refusal(type(error).__name__, error.message, error.remedy, detail)
    message = f"the local backend's worker raised {type(error).__name__}: {error}"
    return Refusal(BackendError.__name__, message, None, detail)


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies; end of file does it elsewhere."""
    if sys.platform != "linux":
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    """Run a worker on the socket whose descriptor is the first argument."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    Worker(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
