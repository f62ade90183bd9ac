"""What tests of the core and of plugins stand on: conformance classes, scripted models, servers.

A plugin's author subclasses the class of the plugin's kind:

    from rllm_core.testing import BenchmarkConformance

    class TestMine(BenchmarkConformance):
        benchmark = MyBenchmark
        options = {"file": "tests/rows.jsonl"}

The tests are inherited, so that a failure points into the author's own file. The core's own
plugins use the same classes. `pytest`, `pytest-asyncio` (in auto mode) and, for harnesses,
`aiohttp` must be installed.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllm_core.testing.algorithm import AlgorithmConformance
    from rllm_core.testing.backend_suite import BackendConformance
    from rllm_core.testing.benchmark import BenchmarkConformance
    from rllm_core.testing.harness import HarnessConformance
    from rllm_core.testing.tracker import TrackerConformance

__all__ = [
    "AlgorithmConformance",
    "BackendConformance",
    "BenchmarkConformance",
    "HarnessConformance",
    "TrackerConformance",
]

_ROOMS = {
    "AlgorithmConformance": "algorithm",
    "BackendConformance": "backend_suite",
    "BenchmarkConformance": "benchmark",
    "HarnessConformance": "harness",
    "TrackerConformance": "tracker",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    import pytest

    module = f"{__name__}.{_ROOMS[name]}"
    if module not in sys.modules:
        pytest.register_assert_rewrite(module)  # so that a failure shows the values
    return getattr(importlib.import_module(module), name)
