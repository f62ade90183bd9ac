"""Harnesses: agent programs that are given a task and a base URL.

Tokens, calls and branches always come from the gateway; an `Outcome` only annotates them.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from attrs import Factory, field, frozen
from attrs.converters import optional

from rllm_core.types import Graded, Stop, Task, as_graded, as_numbers
from rllm_core.upstream import Endpoint

__all__ = ["Endpoint", "Harness", "HarnessCapabilities", "Note", "Outcome", "RolloutContext"]


@frozen
class HarnessCapabilities:
    """What an agent can do and needs; checked against the benchmark before a run starts."""

    tools: bool = False
    multi_turn: bool = False
    images: bool = False
    needs_sandbox: bool = False


@frozen
class RolloutContext:
    """What a harness is handed with its task.

    `agent(name)` is the endpoint of a named agent: its calls become the trajectory of that
    name. `base_url`, `api_key` and `model` are those of the agent "policy". `deadline` is on
    `time.monotonic()`'s clock. `context_window` counts tokens, None where it is unknown.
    """

    endpoint_of: "Callable[[str], Endpoint]" = field(repr=False)
    attempt: int = 0
    deadline: float = float("inf")
    context_window: int | None = None
    sampling: Mapping[str, Any] = Factory(dict)
    sandbox: Any = None
    logger: logging.Logger = field(default=logging.getLogger("rllm.rollout"), repr=False)

    def agent(self, name: str) -> Endpoint:
        """The endpoint of a named agent of this rollout."""
        return self.endpoint_of(name)

    @property
    def base_url(self) -> str:
        """The default agent's base URL, ending in `/v1`."""
        return self.agent("policy").base_url

    @property
    def api_key(self) -> str:
        """The key of this rollout's session."""
        return self.agent("policy").api_key

    @property
    def model(self) -> str:
        """The model name to ask for."""
        return self.agent("policy").model


@frozen
class Note:
    """What a harness says of one trajectory: a reward of its own, and other facts."""

    name: str
    reward: Graded | None = field(default=None, converter=optional(as_graded))
    metadata: Mapping[str, Any] = Factory(dict)


@frozen
class Outcome:
    """What a harness says of its rollout.

    `output` None means the last assistant text. `stop` says that the agent ended early for a
    reason of its own (`Stop.MAX_TURNS`); what the gateway knows better (context overflow, a
    call limit) stands above it. `metadata` goes to the episode as it is.
    """

    output: str | None = None
    notes: tuple[Note, ...] = ()
    metrics: Mapping[str, float] = field(factory=dict, converter=as_numbers)
    stop: Stop = Stop.DONE
    metadata: Mapping[str, Any] = Factory(dict)


class Harness:
    """Base of all harnesses. `options` is an instance of the class's `Options`."""

    capabilities: ClassVar[HarnessCapabilities] = HarnessCapabilities()

    @frozen
    class Options:
        """Options that users set under `[harness]`."""

    def __init__(self, options: Any = None) -> None:
        self.options: Any = options if options is not None else self.Options()

    def check(self, task: Task) -> None:
        """Raise ConfigError for a task that this harness cannot work on; called before a run."""

    async def install(self, sandbox: Any) -> None:
        """Put the agent into a sandbox; its effect is part of the snapshot."""

    async def run(self, task: Task, ctx: RolloutContext) -> Outcome:
        """Let the agent work on the task (without its private part) until it is done."""
        raise NotImplementedError
