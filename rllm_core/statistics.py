"""Statistics of a set of episodes: means with honest errors, pass@k, and what to account for.

Attempts at one task resemble each other, so standard errors are clustered by task (Miller
2024, "Adding error bars to evals", arXiv:2411.00640, with the G/(G − 1) correction for G
tasks): with one attempt a task it is the ordinary standard error of a mean. pass@k is the
unbiased estimator of Chen et al. 2021 (HumanEval, arXiv:2107.03374).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from attrs import asdict, evolve, field, frozen

from rllm_core.types import Episode, Graded, Missing, Step, Stop, is_value

__all__ = ["Attempt", "Estimate", "Summary", "clustered", "mean", "pass_at_k", "summarize"]

TRUNCATED = (Stop.CONTEXT_OVERFLOW, Stop.MAX_TOKENS)
SUCCESS = 1.0
"""The reward from which on an attempt counts as a success for pass@k."""
ROUNDING = 1e-12
"""A standard error below this is zero but for rounding."""


@frozen
class Attempt:
    """What statistics need to know of an episode: its grade, its end, what it took."""

    task: str
    graded: Graded
    stop: Stop = Stop.DONE
    error: str | None = None
    message: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    truncated: bool = False
    untrainable: int = 0

    @classmethod
    def of(cls, episode: Episode) -> "Attempt":
        """The facts of an episode.

        Tokens are counted by the server or, where it did not, by the recorded ids.
        `untrainable` counts the calls that may not be trained on.
        """
        steps = list(episode.steps)
        return cls(
            task=episode.task_id,
            graded=episode.reward,
            stop=episode.stop,
            error=episode.error.category if episode.error else None,
            message=episode.error.message if episode.error else "",
            calls=len(steps),
            prompt_tokens=sum(step.usage.prompt_tokens for step in steps),
            completion_tokens=sum(_sampled(step) for step in steps),
            seconds=episode.seconds,
            truncated=episode.stop in TRUNCATED or any(s.finish == "length" for s in steps),
            untrainable=sum(step.untrainable is not None for step in steps),
        )

    @property
    def errored(self) -> bool:
        """Whether an error, not the scorer, is why there is no grade."""
        return not is_value(self.graded) and self.error not in (None, "score")


def _sampled(step: Step) -> int:
    return step.usage.completion_tokens or len(step.output_ids)


@frozen
class Estimate:
    """A mean, its standard error (None from fewer than two clusters), and of how much."""

    mean: float
    se: float | None
    n: int
    clusters: int

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """The confidence interval by the central limit theorem."""
        if self.se is None:
            return None
        half = NormalDist().inv_cdf(0.5 + level / 2) * self.se
        return (self.mean - half, self.mean + half)

    def wilson(self, level: float = 0.95) -> tuple[float, float]:
        """Wilson's interval (1927) for a share of independent yes/no outcomes.

        Unlike `interval` it stays within [0, 1] and has a width at 0 and 1. Right only with
        one attempt a task.
        """
        z = NormalDist().inv_cdf(0.5 + level / 2)
        shrink = 1 + z * z / self.n
        centre = (self.mean + z * z / (2 * self.n)) / shrink
        spread = self.mean * (1 - self.mean) / self.n + z * z / (4 * self.n * self.n)
        half = z * math.sqrt(spread) / shrink
        return (max(0.0, centre - half), min(1.0, centre + half))


def clustered(clusters: Iterable[Sequence[float]]) -> Estimate | None:
    """The mean of all values, its standard error clustered; None where there is no value.

    se² = G/(G − 1) · Σ_g (Σ_{i∈g} (x_i − x̄))² / n²,   n values in G clusters
    """
    groups = [values for values in clusters if values]
    n, count = sum(map(len, groups)), len(groups)
    if n == 0:
        return None
    average = math.fsum(x for values in groups for x in values) / n
    if count < 2:
        return Estimate(average, None, n, count)
    squares = math.fsum(math.fsum(x - average for x in values) ** 2 for values in groups)
    return Estimate(average, math.sqrt(squares * count / (count - 1)) / n, n, count)


def mean(values: Iterable[float]) -> Estimate | None:
    """The mean of independent values with its ordinary standard error."""
    return clustered([x] for x in values)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k attempts succeeds, from c successes in n attempts.

    1 − C(n − c, k) / C(n, k); ValueError where n < k: it cannot be estimated without bias.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {c} successes in {n} attempts")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@frozen
class Summary:
    """A set of episodes in numbers; every episode is graded, errored or ungraded.

    - `accuracy`: mean reward where an errored episode counts as 0.
    - `accuracy_without_errors`: mean reward of what was graded.
    - `ungraded`: reasons why episodes were neither, `errors`: categories, `stops`: early ends.
    - `truncated`: episodes in which a reply was cut by a limit of tokens or of the context.
    - `binary`: whether every reward was 0 or 1, so that the mean is a share of successes.
    - `pass_at`: k → unbiased pass@k over the tasks with at least k attempts.
    """

    tasks: int
    episodes: int
    graded: int
    accuracy: Estimate | None
    accuracy_without_errors: Estimate | None
    ungraded: Mapping[str, int] = field(factory=dict)
    errors: Mapping[str, int] = field(factory=dict)
    stops: Mapping[str, int] = field(factory=dict)
    pass_at: Mapping[int, Estimate] = field(factory=dict)
    binary: bool = True
    truncated: int = 0
    calls: int = 0
    untrainable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """The confidence interval of `accuracy`: Wilson's for one yes or no a task, else CLT.

        Several attempts of which every task has the same share leave the CLT no spread: they say
        as much as one attempt a task would, which Wilson's interval puts into numbers.
        """
        estimate = self.accuracy
        if estimate is None:
            return None
        flat = estimate.se is not None and estimate.se < ROUNDING
        if self.binary and (estimate.n == estimate.clusters or flat):
            return evolve(estimate, n=estimate.clusters).wilson(level)
        interval = estimate.interval(level)
        if interval is None or not self.binary:
            return interval
        return (max(0.0, interval[0]), min(1.0, interval[1]))

    def to_json(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)


def summarize(episodes: Iterable[Episode | Attempt]) -> Summary:
    """The summary of a set of episodes."""
    attempts = [e if isinstance(e, Attempt) else Attempt.of(e) for e in episodes]
    graded: dict[str, list[float]] = {}
    counted: dict[str, list[float]] = {}
    for attempt in attempts:
        if isinstance(attempt.graded, (int, float)):
            graded.setdefault(attempt.task, []).append(attempt.graded)
            counted.setdefault(attempt.task, []).append(attempt.graded)
        elif attempt.errored:
            counted.setdefault(attempt.task, []).append(0.0)
    return Summary(
        tasks=len({a.task for a in attempts}),
        episodes=len(attempts),
        graded=sum(map(len, graded.values())),
        accuracy=clustered(counted.values()),
        accuracy_without_errors=clustered(graded.values()),
        ungraded=Counter(_reason(a) for a in attempts if not (is_value(a.graded) or a.errored)),
        errors=Counter(a.error for a in attempts if a.error is not None),
        stops=Counter(a.stop.value for a in attempts if a.stop != Stop.DONE),
        pass_at=_pass_at(list(counted.values())),
        binary=all(x in (0.0, 1.0) for values in graded.values() for x in values),
        truncated=sum(a.truncated for a in attempts),
        calls=sum(a.calls for a in attempts),
        untrainable=sum(a.untrainable for a in attempts),
        prompt_tokens=sum(a.prompt_tokens for a in attempts),
        completion_tokens=sum(a.completion_tokens for a in attempts),
        seconds=math.fsum(a.seconds for a in attempts),
    )


def _reason(attempt: Attempt) -> str:
    graded = attempt.graded
    if isinstance(graded, Missing):
        return graded.reason
    return f"scorer failed: {getattr(graded, 'error', '')}"


def _pass_at(tasks: Sequence[Sequence[float]]) -> dict[int, Estimate]:
    """pass@k for k = 2, 4, 8, … and the largest number of attempts."""
    most = max(map(len, tasks), default=1)
    ks = sorted({2**i for i in range(1, most.bit_length())} | {most}) if most > 1 else []
    estimates = {}
    for k in ks:
        shares = [
            pass_at_k(len(values), sum(x >= SUCCESS for x in values), k)
            for values in tasks
            if len(values) >= k
        ]
        estimate = mean(shares)
        if estimate is not None:
            estimates[k] = estimate
    return estimates
