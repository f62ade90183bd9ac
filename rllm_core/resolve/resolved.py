"""A run whose every part is known: what the engine and the training loop are built from."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from rllm_core.config.schema import RunConfig
from rllm_core.plugins import Entry
from rllm_core.providers import Local, Wire
from rllm_core.resolve.chosen import Chosen

__all__ = ["Resolved"]


@frozen
class Resolved:
    """The checked run.

    `config` is complete: splits, option defaults and the backend are filled in, so that it can
    be stored and run again. A benchmark's `table` says which tasks (`BenchmarkTable`); `scorer`
    (an `rllm_core.scoring.Scorer`) takes the place of the benchmark's own where it is not None.
    `entries` are the plugins that were loaded, with their packages and versions.
    """

    config: RunConfig
    benchmarks: tuple[Chosen, ...]
    validation: Chosen | None
    harness: Chosen
    scorer: Any
    sandbox: Chosen | None
    models: Mapping[str, Wire | Local]
    backend: Chosen | None
    algorithm: Chosen | None
    trackers: tuple[Chosen, ...]
    entries: tuple[Entry, ...] = ()

    @property
    def policy(self) -> Wire | Local:
        """The model that the agent talks to."""
        return self.models["policy"]
