"""Rollout functions: an agent that is a plain Python function `(task, ctx)`.

    @rllm.rollout
    async def solver(task, ctx):
        client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
        reply = await client.chat.completions.create(model=ctx.model, messages=task.messages)
        return reply.choices[0].message.content

The mark is optional where the function is named by reference (`--harness module:solver`).
What it returns only annotates the rollout: tokens and calls always come from the gateway.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from attrs import frozen

from rllm_core.errors import ConfigError, HarnessError
from rllm_core.harness import Harness, HarnessCapabilities, Note, Outcome, RolloutContext
from rllm_core.references import positional_arity, resolve_object
from rllm_core.types import Episode, Score, Task, Trajectory

__all__ = ["FunctionHarness", "harness_class", "rollout", "to_outcome"]

F = TypeVar("F", bound=Callable[..., Any])
ALLOWED = "a rollout function returns str, Trajectory, Episode, Outcome or None"


def rollout(function: F) -> F:
    """Mark a sync or async function `(task, ctx)` as an agent.

    It may return the final answer as a str, None (the last assistant text is the answer), or a
    Trajectory, an Episode or an Outcome, whose names, rewards, metrics and metadata are kept.
    Raises ConfigError at once where the function does not take these two arguments.
    """
    _check_signature(function)
    function.__rllm_kind__ = "rollout"  # type: ignore[attr-defined]
    return function


def harness_class(reference: "str | Callable[..., Any]") -> type[Harness]:
    """The harness that `--harness module:object` names: a Harness class, or a function.

    Raises ConfigError where the reference leads nowhere or to something else.
    """
    found = resolve_object(reference)
    if isinstance(found, type):
        if issubclass(found, Harness):
            return found
        raise ConfigError(
            f"harness {found.__module__}:{found.__qualname__} is a class, but no Harness",
            remedy="derive it from rllm_core.harness.Harness, or name a function (task, ctx)",
        )
    return FunctionHarness.of(found)


class FunctionHarness(Harness):
    """A rollout function as a harness.

    Async functions run on the event loop. Each call of a sync one has a thread; when its
    deadline passes, the engine closes its session, so that its next model call fails, and the
    thread is left to itself: `abandoned` counts those. Exceptions pass through: the engine
    gives them a category.
    """

    capabilities = HarnessCapabilities(tools=True, multi_turn=True, images=True)
    function: ClassVar[Callable[..., Any] | None] = None

    @frozen
    class Options:
        """A function has no options."""

    def __init__(self, options: Any = None, *, function: Callable[..., Any] | None = None) -> None:
        super().__init__(options)
        chosen = function or type(self).function
        if chosen is None:
            raise TypeError("FunctionHarness needs a function: FunctionHarness.of(function)")
        _check_signature(chosen)
        self.call: Callable[..., Any] = chosen
        self.name = _name(chosen)
        self.abandoned = 0

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "type[FunctionHarness]":
        """A harness class for this function, which takes options like any other (it has none)."""
        _check_signature(function)
        body = {"function": staticmethod(function), "__doc__": inspect.getdoc(function)}
        return type(getattr(function, "__name__", "function"), (cls,), body)

    async def run(self, task: Task, ctx: RolloutContext) -> Outcome:
        """Call the function and read its return value."""
        if _is_async(self.call):
            return to_outcome(await self.call(task, ctx), self.name)
        from rllm_core.threads import run_in_thread

        returned = await run_in_thread(self.call, task, ctx, abandoned=self._count)
        if inspect.isawaitable(returned):  # a plain function that hands back a coroutine
            returned = await returned
        return to_outcome(returned, self.name)

    def _count(self) -> None:
        self.abandoned += 1


def to_outcome(returned: Any, name: str = "the rollout function") -> Outcome:
    """What a rollout function returned, as an Outcome; HarnessError for any other type."""
    match returned:
        case Outcome():
            return returned
        case None | str():
            return Outcome(output=returned)
        case Trajectory():
            return Outcome(output=returned.output or None, notes=(_note(returned, None),))
        case Episode():
            return _from_episode(returned)
    kind = type(returned)
    raise HarnessError(
        f"{name} returned {kind.__module__}.{kind.__qualname__} {returned!r:.80}", remedy=ALLOWED
    )


def _from_episode(episode: Episode) -> Outcome:
    """Its names, rewards, metrics and metadata; a score of its own becomes the rewards.

    Steps are not read: the gateway has recorded them.
    """
    notes = tuple(_note(t, episode.score) for t in episode.trajectories)
    if episode.score is not None and not notes:
        notes = (_note(Trajectory(), episode.score),)
    return Outcome(
        episode.output or None, notes, episode.metrics, episode.stop, metadata=episode.metadata
    )


def _note(trajectory: Trajectory, score: Score | None) -> Note:
    reward = trajectory.reward
    if reward is None and score is not None:
        reward = score.trajectories.get(trajectory.name, score.value)
    return Note(trajectory.name, reward, trajectory.metadata)


def _check_signature(function: Any) -> None:
    """Refuse, before anything starts, what cannot be called as `function(task, ctx)`."""
    if not callable(function):
        raise ConfigError(
            f"{function!r:.80} cannot be called, so it is no rollout function",
            remedy="a rollout function takes (task, ctx)",
        )
    try:
        required, most = positional_arity(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_name(function)}: {error}") from error
    if not required <= 2 <= most:
        raise ConfigError(
            f"{_name(function)}{inspect.signature(function)} cannot be called with (task, ctx)",
            remedy="a rollout function takes two positional arguments: the task and its context",
        )


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    )


def _name(function: Any) -> str:
    module = getattr(function, "__module__", "")
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
