"""What is to be rolled out."""

import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from attrs import Factory, field, frozen

from rllm_core.benchmark import ScoreContext
from rllm_core.types import Episode, Score, Task

__all__ = ["Job", "Sampling", "Scorer"]


class Scorer(Protocol):
    """What scores an episode: a benchmark, or what `--scorer` names."""

    def score(self, task: Task, episode: Episode, ctx: ScoreContext) -> Awaitable[Score]:
        """Score one episode; an exception is a failed score."""
        ...


@frozen
class Sampling:
    """Sampling settings that the gateway enforces; None leaves a setting to the agent."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None

    def enforced(self) -> dict[str, Any]:
        """Only what is set, as the gateway takes it."""
        values = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_tokens": self.max_tokens,
        }
        return {key: value for key, value in values.items() if value is not None}


@frozen
class Job:
    """One attempt at one task.

    `phase` says what the rollout is for ("train", "before", a benchmark's name, …); with
    `group` (the task's number in the phase) and `attempt` it names the episode.
    """

    phase: str
    group: int
    attempt: int
    task: Task
    scorer: Scorer = field(repr=False)
    sampling: Sampling = Sampling()
    metadata: Mapping[str, Any] = Factory(dict)

    @property
    def episode_id(self) -> str:
        """The episode's name within its run."""
        return f"{self.phase}-{self.group}-{self.attempt}"

    def seed(self, run_seed: int) -> int:
        """The seed of this attempt's sampling: 63 bits of a hash, equal across runs."""
        text = f"{run_seed}/{self.phase}/{self.group}/{self.attempt}/{self.task.id}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
