"""The built-in scorers, by the name that `--scorer` takes.

Each compares the episode's output with `task.private["answer"]`; a list of answers means any of
them. A task without an answer has no score, and says so.
"""

import difflib
from collections.abc import Callable
from typing import Any

from rllm_core.errors import ConfigError
from rllm_core.scoring import numbers, text
from rllm_core.scoring.scorer import Scorer
from rllm_core.types import Episode, Graded, Missing, Task

__all__ = ["NAMES", "named"]

Compare = Callable[[str, str], bool]

COMPARISONS: dict[str, tuple[Compare, str]] = {
    "exact": (text.exact, "the output is the answer, white space around it aside"),
    "contains": (text.contains, "the answer occurs in the output, whatever the case"),
    "number": (numbers.matches, "the output's final number equals the answer's"),
}
NAMES = tuple(COMPARISONS)


def named(name: str) -> Scorer:
    """The built-in scorer of this name; ConfigError names those there are."""
    if name not in COMPARISONS:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"there is no scorer {name!r}",
            remedy=f"{hint}the built-in ones are {', '.join(NAMES)}; your own: module:function",
        )
    compare, meaning = COMPARISONS[name]

    def score(task: Task, episode: Episode) -> Graded:
        return _any_answer(compare, task, episode.output)

    score.__doc__ = f"1 if {meaning}, else 0."
    return Scorer(score, name=name, inline=True)


def _any_answer(compare: Compare, task: Task, output: str) -> Graded:
    gold: Any = task.private.get("answer")
    answers = gold if isinstance(gold, (list, tuple)) else [gold]
    if gold is None or not answers:
        return Missing(f"task {task.id!r} has no private 'answer' to compare with")
    return float(any(compare(output, str(answer)) for answer in answers))
