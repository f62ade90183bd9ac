"""Started backends, closed again."""

import os
from pathlib import Path

import pytest
from rllm_backend_local import LocalBackend, Options

from rllm_core.backend import ModelSpec


@pytest.fixture
async def start():
    """start(name, **options) -> the model, in a worker of its own."""
    backends = []

    async def starter(name="tiny", **options):
        backend = LocalBackend(Options(**{"threads": 1, "call_timeout": 60.0, **options}))
        backends.append(backend)
        await backend.start()
        return (await backend.model("policy", ModelSpec(name))).model

    yield starter
    for backend in backends:
        await backend.close()


@pytest.fixture
def smollm2():
    """The name of the small real model; skips where it would have to be fetched."""
    home = Path(os.environ.get("RLLM_HOME") or Path.home() / ".rllm")
    if not (home / "models" / "smollm2-135m").exists() and "RLLM_TEST_MODELS" not in os.environ:
        pytest.skip("smollm2-135m is not in the cache (RLLM_TEST_MODELS=1 fetches it)")
    return "smollm2-135m"
