"""Models in a worker and in this process, closed again."""

import os
from pathlib import Path

import pytest
import pytest_asyncio
from rllm_backend_local import LocalBackend, Options

from rllm_core.backend import ModelSpec


class Started:
    """Backends by their options; a checkpoint of the first weights makes each new again."""

    def __init__(self, folder):
        self.folder, self.backends, self.models = folder, [], {}

    async def __call__(self, name="tiny", **options):
        key = (name, *sorted(options.items()))
        if key not in self.models:
            backend = LocalBackend(Options(**{"threads": 1, "call_timeout": 100.0, **options}))
            self.backends.append(backend)
            await backend.start()
            loaded = await backend.model("policy", ModelSpec(name))
            checkpoint = self.folder / str(len(self.models))
            await loaded.model.save(checkpoint)
            self.models[key] = loaded, checkpoint
        loaded, checkpoint = self.models[key]
        await loaded.model.load(checkpoint)
        return loaded.model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def start(tmp_path_factory):
    """start(name, **options): a model at its first weights, in the module's worker for it."""
    started = Started(tmp_path_factory.mktemp("first"))
    yield started
    for backend in started.backends:
        await backend.close()


@pytest.fixture
def smollm2():
    """The name of the small real model; skips where it would have to be fetched."""
    home = Path(os.environ.get("RLLM_HOME") or Path.home() / ".rllm")
    if not (home / "models" / "smollm2-135m").exists() and "RLLM_TEST_MODELS" not in os.environ:
        pytest.skip("smollm2-135m is not in the cache (RLLM_TEST_MODELS=1 fetches it)")
    return "smollm2-135m"
