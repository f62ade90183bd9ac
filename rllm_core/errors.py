"""The error model.

Plugin code raises plain exceptions. A boundary (the engine, the gateway, the scorer's
process) turns what it catches into one of these categories, and only the category decides
what happens next:

    RllmError
    ├── ConfigError     found before anything starts; ends the command, exit code 2
    ├── InfraError      a sandbox, a worker or a network died; retried on a fresh one
    ├── ModelError      the model's server answered with an error, or not at all
    ├── HarnessError    the agent program failed
    ├── ScoreError      the scorer failed: the episode is "not graded", never 0
    ├── BackendError    the trainer failed; ends the run, everything finished is kept
    ├── StoreError      the run directory takes no more (full disk); ends the run, likewise
    └── RolloutTimeout  a deadline passed

A typed stop (`rllm_core.types.Stop`: context overflow, turn limit, …) is no error: the
episode ended early, is scored as it stands, and is counted.

A message says what happened and where; `remedy` says what to do about it.
"""

from typing import ClassVar

__all__ = [
    "BackendError",
    "ConfigError",
    "HarnessError",
    "InfraError",
    "ModelError",
    "RllmError",
    "RolloutTimeout",
    "ScoreError",
    "StoreError",
]


class RllmError(Exception):
    """Base of every error that this package raises on purpose."""

    category: ClassVar[str] = "error"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message}\n{self.remedy}"


class ConfigError(RllmError):
    """A setting, a name or a combination that cannot work; raised before anything starts."""

    category = "config"


class InfraError(RllmError):
    """Something under the rollout died. The engine retries these, on a fresh sandbox."""

    category = "infra"


class ModelError(RllmError):
    """The model's server refused, answered nonsense, or could not be reached."""

    category = "model"


class HarnessError(RllmError):
    """The agent program raised, or exited in failure."""

    category = "harness"


class ScoreError(RllmError):
    """The scorer raised, hung, or returned something that is no score."""

    category = "score"


class BackendError(RllmError):
    """The training backend failed or died."""

    category = "backend"


class StoreError(RllmError):
    """The run directory cannot be written or read; what was committed is safe."""

    category = "store"


class RolloutTimeout(RllmError):  # noqa: N818 - a time-out is what users call it
    """A rollout, or a part of it, passed its deadline."""

    category = "timeout"
