"""The suite that all backends pass."""

import pytest
from rllm_backend_local import LocalBackend

from rllm_core.testing import BackendConformance


class TestTiny(BackendConformance):
    backend = LocalBackend
    options = {"threads": 1, "call_timeout": 100.0}


@pytest.mark.slow
class TestTinyLora(BackendConformance):
    backend = LocalBackend
    options = {"threads": 1, "call_timeout": 100.0, "mode": "lora", "lora_rank": 8}
    learning_rate = 1e-2
    reward = 0.6  # adapters under a frozen random head do not get far
