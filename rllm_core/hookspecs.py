"""The contract between the core and its plugins, a menu.

A plugin module implements the hook of its kind with `@hookimpl`, and is found through the
entry-point group of that kind (`rllm.harnesses`, `rllm.benchmarks`, …). A module that
serves one name leaves the `name` argument out. Capability hooks return a class; event hooks
return nothing and may be implemented by any plugin of a run.
"""

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from rllm_core.algorithms import Algorithm
    from rllm_core.backend import Backend
    from rllm_core.benchmark import Benchmark
    from rllm_core.harness import Harness
    from rllm_core.tracking import Tracker
    from rllm_core.types import Episode

__all__ = ["API_VERSION", "hookimpl", "hookspec"]

API_VERSION = (0, 1)
"""Version of this contract; a plugin may state the one it was built for as `RLLM_API`."""

hookspec = pluggy.HookspecMarker("rllm")
hookimpl = pluggy.HookimplMarker("rllm")


@hookspec(firstresult=True)
def rllm_harness(name: str) -> "type[Harness]":  # type: ignore[empty-body]
    """The agent program of this name."""


@hookspec(firstresult=True)
def rllm_sandbox(name: str) -> type:  # type: ignore[empty-body]
    """The sandbox provider of this name."""


@hookspec(firstresult=True)
def rllm_backend(name: str) -> "type[Backend]":  # type: ignore[empty-body]
    """The training backend of this name."""


@hookspec(firstresult=True)
def rllm_sampler(name: str) -> type:  # type: ignore[empty-body]
    """The inference server of this name."""


@hookspec(firstresult=True)
def rllm_benchmark(name: str) -> "type[Benchmark]":  # type: ignore[empty-body]
    """The benchmark of this name: its tasks and how they are scored."""


@hookspec(firstresult=True)
def rllm_algorithm(name: str) -> "type[Algorithm]":  # type: ignore[empty-body]
    """The algorithm of this name: what turns scores into credit."""


@hookspec(firstresult=True)
def rllm_tracker(name: str) -> "type[Tracker]":  # type: ignore[empty-body]
    """The metrics tracker of this name: an object with the event hooks below."""


@hookspec(firstresult=True)
def rllm_command(name: str) -> Any:
    """The click command of this name, added to `rllm`."""


@hookspec
def rllm_run_started(run: Any) -> None:
    """A run has been checked and is about to start."""


@hookspec
def rllm_episode_finished(run: Any, episode: "Episode") -> None:
    """A rollout has ended, scored or not."""


@hookspec
def rllm_step_finished(run: Any, step: int, metrics: "dict[str, float]") -> None:
    """A training step has ended."""


@hookspec
def rllm_run_finished(run: Any, summary: "dict[str, Any]") -> None:
    """A run has ended, in whatever way."""
