"""How far a phase is, and the table of training steps: what the display shows as it happens."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import Factory, define

from rllm_core.cli.typography import Typography, counted, duration, tally
from rllm_core.statistics import Attempt, clustered
from rllm_core.types import Episode

__all__ = ["Progress", "StepTable"]

ROWS = 20
"""Rows that a run's table of steps has, about."""


@define
class Progress:
    """Episodes of one phase so far; `total` is 0 where nobody knows how many there will be.

    `done` counts those of an earlier process too; rates and means are of this one's.
    """

    name: str
    total: int = 0
    done: int = 0
    ended: int = 0
    tokens: int = 0
    errors: Counter[str] = Factory(Counter)
    rewards: dict[str, list[float]] = Factory(dict)
    started: float = Factory(time.monotonic)

    def add(self, episode: Episode) -> None:
        """Count one that has ended; an error counts as 0, as in the summary's accuracy."""
        attempt = Attempt.of(episode)
        self.done += 1
        self.ended += 1
        self.tokens += attempt.completion_tokens
        if attempt.error is not None:
            self.errors[attempt.error] += 1
        if isinstance(attempt.graded, (int, float)):
            self.rewards.setdefault(attempt.task, []).append(attempt.graded)
        elif attempt.errored:
            self.rewards.setdefault(attempt.task, []).append(0.0)

    def line(self, text: Typography) -> str:
        """`120/200  0.62 ± 0.04 · errors: 3 infra · 1,204 tokens/s · 1 min 20 s`."""
        seconds = time.monotonic() - self.started
        estimate = clustered(list(self.rewards.values()))
        parts = [
            "" if estimate is None else text.estimate(estimate),
            f"errors: {tally(self.errors)}" if self.errors else "",
            f"{self.tokens / seconds:,.0f} tokens/s" if self.tokens and seconds > 0.5 else "",
            duration(seconds),
        ]
        return f"{self._count()}  {text.join(parts)}"

    def live_line(self, text: Typography) -> str:
        """The same with a bar, for a line that is redrawn."""
        bar = f"{text.bar(self.done, self.total)} " if self.total else ""
        return f"{text.clean(self.name)} {bar}{self.line(text)}"

    def _count(self) -> str:
        if self.total:
            return f"{self.done:,}/{self.total:,}"
        return counted(self.done, "episode")


@define
class StepTable:
    """Rows for the steps of a training run, each the mean of the steps since the last row."""

    steps: int = 0
    width: int = 80
    curve: list[float] = Factory(list)
    waiting: list[Mapping[str, float]] = Factory(list)
    headed: bool = False
    last: int = 0

    def add(self, step: int, metrics: Mapping[str, float], text: Typography) -> list[str]:
        """Lines to print now that step number `step` (from 1) has ended; often none."""
        self.waiting.append(metrics)
        self.last = step
        if "reward" in metrics:
            self.curve.append(metrics["reward"])
        every = max(1, math.ceil(self.steps / ROWS))
        return self.flush(text) if step % every == 0 or step == self.steps else []

    def flush(self, text: Typography) -> list[str]:
        """Lines for the steps that no row has shown yet."""
        if not self.waiting:
            return []
        cells = self._cells(text)
        lines = [] if self.headed else [self._line({key: key for key, _ in COLUMNS})]
        self.headed = True
        self.waiting.clear()
        note = cells.pop("errors")
        return [*lines, self._line(cells) + note]

    def _cells(self, text: Typography) -> dict[str, str]:
        reward, se = self._mean("reward"), self._mean("reward_se", squares=True)
        errors = sum(m.get("errors", 0) for m in self.waiting)
        return {
            "step": str(self.last),
            "reward": "no grade" if reward is None else text.value(reward, se),
            "": text.curve(self.curve),
            "informative": _cell(self._mean("informative"), "{:.2f}"),
            "tokens": _cell(self._mean("tokens"), "{:,.0f}"),
            "step s": _cell(self._mean("seconds"), "{:.1f}"),
            "staleness": _cell(self._mean("staleness"), "{:.1f}"),
            "errors": f"  {counted(round(errors), 'error')}" if errors else "",
        }

    def _mean(self, key: str, *, squares: bool = False) -> float | None:
        """The mean over the waiting steps; of standard errors, that of the mean."""
        values = [m[key] for m in self.waiting if key in m and math.isfinite(m[key])]
        if not values:
            return None
        if squares:
            return math.sqrt(sum(x * x for x in values)) / len(values)
        return sum(values) / len(values)

    def _line(self, cells: Mapping[str, Any]) -> str:
        """As many columns as the terminal has room for."""
        line = ""
        for key, layout in COLUMNS:
            longer = line + ("  " if line else "") + f"{cells[key]:{layout}}"
            if len(longer) > self.width:
                break
            line = longer
        return line.rstrip()


COLUMNS = (
    ("step", ">4"),
    ("reward", "<14"),
    ("", "<12"),
    ("informative", ">11"),
    ("tokens", ">7"),
    ("step s", ">6"),
    ("staleness", ">9"),
)
"""Names and layouts of the table's columns; the unnamed one is the reward's curve."""


def _cell(value: float | None, layout: str) -> str:
    return "" if value is None else layout.format(value)
