"""The local backend: train and sample a small model on this machine's CPU.

Sampler and trainer live in one worker process (`worker`), which the parent drives over a
socket (`process`). In the worker, `sampler` batches completions over an engine (`llama`, or
`generic` for other architectures), and `trainer` makes gradients over rows that compute
common beginnings once (`packing`). `models` finds a model by its name and fetches the
default one (`smollm2`).
"""

from rllm_backend_local.backend import LocalBackend
from rllm_backend_local.options import Options
from rllm_core.hookspecs import hookimpl

__all__ = ["LocalBackend", "Options"]


@hookimpl
def rllm_backend() -> type[LocalBackend]:
    """The backend `local`."""
    return LocalBackend
