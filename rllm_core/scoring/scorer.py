"""A user's evaluator function as a scorer, with a time limit and a checked return value."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rllm_core.errors import ConfigError, ScoreError
from rllm_core.references import is_reference, positional_arity, resolve_object
from rllm_core.types import Episode, Failed, Missing, Score, Task

__all__ = ["DEFAULT_SECONDS", "Scorer", "evaluator", "load_scorer"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SECONDS = 60.0
"""How long a scorer may take with one episode."""

ALLOWED = "an evaluator returns a finite number, a bool, a Score or a Missing(reason)"


def evaluator(function: F) -> F:
    """Mark a sync or async function `(task, episode)` or `(task, episode, ctx)` as a scorer.

    Here the task has its private part. `ctx` is a `ScoreContext`. The function returns a
    number, a bool, a `Score`, or `Missing(reason)` where there can be no score; what it raises
    is recorded as a failed score, never as zero. Raises ConfigError at once where the
    function takes other arguments.
    """
    _check_signature(function)
    function.__rllm_kind__ = "evaluator"  # type: ignore[attr-defined]
    return function


def load_scorer(
    reference: "str | Callable[..., Any]", *, seconds: float = DEFAULT_SECONDS
) -> "Scorer":
    """The scorer that `--scorer NAME|module:object` names; ConfigError where there is none."""
    if isinstance(reference, str) and not is_reference(reference):
        from rllm_core.scoring.named import named

        return named(reference)
    return Scorer(resolve_object(reference), seconds=seconds)


class Scorer:
    """An evaluator function that can be awaited for any episode.

    A sync function runs in a thread, beside the event loop. A thread can be left behind but
    not killed, and a regular expression that never ends holds Python's lock as well: so the
    limit helps against code that waits, not against code that spins in C. The built-in scorers
    (`inline=True`) run on the loop: each is linear in the output and waits for nothing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        seconds: float = DEFAULT_SECONDS,
        inline: bool = False,
    ) -> None:
        self.takes_context = _check_signature(function)
        self.function = function
        self.name = name or _name(function)
        self.seconds = seconds
        self.inline = inline

    async def score(self, task: Task, episode: Episode, ctx: Any = None) -> Score:
        """The score of one episode.

        Raises what the function raises, and ScoreError where it takes too long or returns
        something that is no score; the caller records either as `Failed`.
        """
        arguments = (task, episode, ctx) if self.takes_context else (task, episode)
        if self.inline:
            return self._checked(self.function(*arguments))
        import asyncio

        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                return self._checked(await self._call(arguments))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ScoreError(f"scorer {self.name} took more than {self.seconds:g} s") from error

    async def _call(self, arguments: tuple[Any, ...]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(*arguments)
        from rllm_core.threads import run_in_thread

        returned = await run_in_thread(self.function, *arguments)
        return await returned if inspect.isawaitable(returned) else returned

    def _checked(self, value: Any) -> Score:
        if isinstance(value, (Missing, Failed)):
            return Score(value)
        try:
            return Score.of(value)
        except (ValueError, TypeError) as error:
            raise ScoreError(f"scorer {self.name}: {error}", remedy=ALLOWED) from error


def _check_signature(function: Any) -> bool:
    """Refuse what cannot be called with two or three arguments; whether it takes the context."""
    if not callable(function):
        raise ConfigError(
            f"{function!r:.80} cannot be called, so it is no evaluator",
            remedy="an evaluator takes (task, episode) or (task, episode, ctx)",
        )
    try:
        required, most = positional_arity(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_name(function)}: {error}") from error
    if required > 3 or most < 2:
        raise ConfigError(
            f"{_name(function)}{inspect.signature(function)} cannot be called with (task, episode)",
            remedy="an evaluator takes (task, episode) or (task, episode, ctx)",
        )
    return required == 3 or (most >= 3 and _third_is_context(function))


def _third_is_context(function: Any) -> bool:
    """An optional third argument is the context only if it is named so."""
    parameters = list(inspect.signature(function).parameters)
    return len(parameters) > 2 and parameters[2] == "ctx"


def _name(function: Any) -> str:
    module = getattr(function, "__module__", "")
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
