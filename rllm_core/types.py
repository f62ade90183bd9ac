"""What flows through the system: Task → Step → Trajectory → Episode → Score.

All of these are frozen, know nothing of the parts that make or use them, and survive a JSON
round trip without loss (`rllm_core.serialize`). Token ids and logprobs lie in `array.array`
(typecodes "i" and "f"): four bytes a token, no numpy needed to import this module.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from attrs import Factory, field, frozen
from attrs.converters import optional

__all__ = [
    "Episode",
    "ErrorRecord",
    "Failed",
    "Graded",
    "Logprobs",
    "Message",
    "Missing",
    "SandboxSpec",
    "Score",
    "Stage",
    "Step",
    "Stop",
    "Task",
    "TokenIds",
    "Tool",
    "Trajectory",
    "Usage",
    "VersionSpan",
    "as_graded",
    "as_numbers",
    "is_value",
]

if TYPE_CHECKING:
    TokenIds = array[int]
    Logprobs = array[float]
else:  # array.array takes no parameters at run time
    TokenIds = Logprobs = array

Message = Mapping[str, Any]
"""One chat message in Chat Completions form: role, content, tool_calls, tool_call_id, …"""


@frozen
class Tool:
    """A function that a task offers to its agent.

    `parameters` is a JSON schema. `function` ("package.module:name") is what runs when the
    model calls it; harnesses that bring tools of their own (a CLI agent) do not need it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: str | None = None

    def spec(self) -> dict[str, Any]:
        """The tool as Chat Completions declares it."""
        body = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**body, "parameters": dict(self.parameters)}}


@frozen
class SandboxSpec:
    """What a task needs to stand in: an image or a directory, resources, network."""

    image: str | None = None
    directory: str | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    network: str = "none"
    env: Mapping[str, str] = Factory(dict)


@frozen
class Stage:
    """One part of a task that is instructed and scored in several (Harbor's "steps")."""

    name: str
    prompt: str
    metadata: Mapping[str, Any] = Factory(dict)


@frozen
class Task:
    """One problem.

    `private` holds the gold answer and whatever else only the scorer may see: it never
    reaches a harness (`public()` is what a harness is handed). `metadata` is open to both.
    """

    id: str
    prompt: str | tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    stages: tuple[Stage, ...] = ()
    environment: SandboxSpec | None = None
    private: Mapping[str, Any] = Factory(dict)
    metadata: Mapping[str, Any] = Factory(dict)

    @classmethod
    def of(
        cls,
        prompt: str | Sequence[Message],
        *,
        id: str = "",  # noqa: A002 - the field's own name
        private: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Self:
        """A task from a prompt; a benchmark fills in an id that is left out."""
        text = prompt if isinstance(prompt, str) else tuple(prompt)
        return cls(id, text, tuple(tools), private=private or {}, metadata=metadata or {})

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The prompt as chat messages."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return [dict(m) for m in self.prompt]

    @property
    def text(self) -> str:
        """The prompt as one text, for agents that take an instruction on the command line."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n\n".join(_plain(m.get("content")) for m in self.prompt)

    def public(self) -> "Task":
        """The task without what only the scorer may see."""
        return Task(
            self.id, self.prompt, self.tools, self.stages, self.environment, {}, self.metadata
        )


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


@frozen
class Missing:
    """No score, and why: the run has no judge, the answer was withheld, and the like."""

    reason: str


@frozen
class Failed:
    """No score, because computing it failed."""

    error: str


Graded = float | Missing | Failed
"""A finite number, or the reason there is none. Nothing defaults to zero."""


def is_value(graded: "Graded | None") -> bool:
    """Whether there is a number."""
    return isinstance(graded, (int, float))


def as_graded(value: Any) -> Graded:
    """A number or bool as a Graded; raises ValueError for NaN, infinities and other types."""
    if isinstance(value, (Missing, Failed)):
        return value
    if isinstance(value, (bool, int, float)) or hasattr(value, "__float__"):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise ValueError(f"a score must be finite, not {number}")
    if value is None:
        raise ValueError("a score must be a number; the scorer returned None (no return?)")
    raise ValueError(f"a score must be a number, not {type(value).__name__} {value!r:.80}")


def _graded_each(values: Mapping[str, Any]) -> dict[str, Graded]:
    return {str(name): as_graded(value) for name, value in values.items()}


def as_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as finite floats; ValueError names one that is none."""
    numbers = {}
    for name, value in values.items():
        try:
            numbers[str(name)] = math.nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError, OverflowError):
            numbers[str(name)] = math.nan
        if not math.isfinite(numbers[str(name)]):
            raise ValueError(f"the metric {name!r} must be a finite number, not {value!r:.80}")
    return numbers


@frozen
class Score:
    """What a scorer says of an episode.

    `parts` names components (format, correctness, …). `trajectories` gives single agents of
    the episode a reward of their own, by trajectory name; the others get `value`.
    """

    value: Graded = field(converter=as_graded)
    parts: Mapping[str, Graded] = field(factory=dict, converter=_graded_each)
    trajectories: Mapping[str, Graded] = field(factory=dict, converter=_graded_each)

    @classmethod
    def of(cls, value: Any) -> "Score":
        """A scorer's return value (Score, number, bool, Missing) as a Score."""
        return value if isinstance(value, Score) else cls(value)


class Stop(StrEnum):
    """Why a rollout ended. Only `ERROR`, `TIMEOUT` and `CANCELLED` are failures."""

    DONE = "done"
    CONTEXT_OVERFLOW = "context_overflow"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CALL_LIMIT = "call_limit"
    TIMEOUT = "timeout"
    ERROR = "error"
    CANCELLED = "cancelled"


@frozen
class ErrorRecord:
    """An error as data: its category (`rllm_core.errors`), message and traceback."""

    category: str
    message: str
    detail: str = ""


@frozen
class Usage:
    """Tokens of a call, as counted by whoever produced them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@frozen
class VersionSpan:
    """Sampled tokens [start, end) of a step were produced by weights `version`."""

    start: int
    end: int
    version: int


def _ints(values: Any) -> TokenIds:
    return values if isinstance(values, array) and values.typecode == "i" else array("i", values)


def _floats(values: Any) -> Logprobs:
    return values if isinstance(values, array) and values.typecode == "f" else array("f", values)


@frozen
class Step:
    """One model call, and its place in the session's token tree.

    A call's prompt is its parent's whole sequence followed by `context_ids`; its completion
    is `output_ids`. So the ids that were sent upstream are the concatenation along the path
    from the root, and each token is stored once. `messages` likewise holds only the messages
    that this call added to its parent's conversation (after the parent's reply).

    `untrainable` says why no token of this call may carry gradient; None means that ids and
    logprobs are the sampler's own. `logprobs` are of the sampled tokens, at the temperature
    that they were sampled at, in nats; one per `output_ids`.
    """

    id: str
    parent: str | None = None
    agent: str = "policy"
    role: str = "policy"
    model: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    reply: Message = Factory(dict)
    context_ids: TokenIds = field(converter=_ints, factory=lambda: array("i"))
    output_ids: TokenIds = field(converter=_ints, factory=lambda: array("i"))
    logprobs: Logprobs = field(converter=_floats, factory=lambda: array("f"))
    versions: tuple[VersionSpan, ...] = ()
    temperature: float = 1.0
    finish: str = "stop"
    untrainable: str | None = None
    usage: Usage = Usage()
    started: float = 0.0
    seconds: float = 0.0

    @property
    def output(self) -> str:
        """The assistant's text."""
        return _plain(self.reply.get("content"))


@frozen
class Trajectory:
    """The calls of one named agent of an episode, in the order they ended."""

    name: str = "policy"
    steps: tuple[Step, ...] = ()
    reward: Graded | None = field(default=None, converter=optional(as_graded))
    metadata: Mapping[str, Any] = Factory(dict)

    @property
    def output(self) -> str:
        """The last assistant text."""
        return self.steps[-1].output if self.steps else ""


@frozen
class Episode:
    """One attempt at a task: every call, the output, the score, and how it ended."""

    id: str
    task_id: str
    attempt: int = 0
    trajectories: tuple[Trajectory, ...] = ()
    output: str = ""
    score: Score | None = None
    stop: Stop = Stop.DONE
    error: ErrorRecord | None = None
    metrics: Mapping[str, float] = field(factory=dict, converter=as_numbers)
    metadata: Mapping[str, Any] = Factory(dict)
    started: float = 0.0
    seconds: float = 0.0

    @property
    def steps(self) -> Iterator[Step]:
        """Every call of every trajectory."""
        return (step for trajectory in self.trajectories for step in trajectory.steps)

    @property
    def reward(self) -> Graded:
        """The score's value; Missing where the episode was not scored."""
        if self.score is not None:
            return self.score.value
        reason = self.error.message if self.error else "not scored"
        return Missing(reason)

    def trajectory(self, name: str) -> Trajectory:
        """The trajectory of this name; KeyError lists the names there are."""
        for trajectory in self.trajectories:
            if trajectory.name == name:
                return trajectory
        names = ", ".join(t.name for t in self.trajectories) or "none"
        raise KeyError(f"no trajectory {name!r}; this episode has: {names}")
