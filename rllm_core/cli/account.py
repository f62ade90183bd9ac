"""Results in words, and the account: one line that names everything that did not go straight.

Errors, truncations and ungraded episodes are named even at zero; whatever else happened
(time-outs, turn limits, retries, skipped batches) is named when it did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rllm_core.cli.typography import Typography, counted, number, tally
from rllm_core.statistics import Summary
from rllm_core.store import Event

__all__ = ["account_line", "count_events", "result_lines"]

NAMED_ELSEWHERE = ("error", "timeout", "context_overflow", "max_tokens")
"""Stops that the line names as an error or a truncation."""


def count_events(events: Iterable[Event]) -> dict[str, int]:
    """How often each kind of event happened."""
    return dict(Counter(event.kind for event in events))


def account_line(
    summary: Summary,
    events: Mapping[str, int],
    text: Typography,
    *,
    trained: bool = False,
    audit: Mapping[str, Any] | None = None,
) -> str:
    """`account: 1,920 episodes · 0 errors · 3 truncated · 0 ungraded …` of a whole run.

    `events` counts what the run noted by kind. Calls that cannot be trained on matter to a
    training run alone (`trained`), which also says what its `audit` found, once it has ended.
    """
    stops = {k: n for k, n in summary.stops.items() if k not in NAMED_ELSEWHERE}
    errors = sum(summary.errors.values())
    untrainable = f"{summary.untrainable:,} of {summary.calls:,} calls untrainable"
    parts = [
        counted(summary.episodes, "episode"),
        counted(errors, "error") + (f" ({tally(summary.errors)})" if errors else ""),
        f"{summary.truncated:,} truncated",
        _ungraded(summary, text),
        f"ended early: {tally(stops)}" if stops else "",
        untrainable if trained and summary.untrainable else "",
        _audited(audit) if audit else "",
        *(f"{n:,} {kind.replace('_', ' ')}" for kind, n in sorted(events.items())),
    ]
    return "account: " + text.join(parts)


def _audited(audit: Mapping[str, Any]) -> str:
    if wrong := int(audit["wrong"]):
        return f"{counted(wrong, 'offence')} in the audit of {audit['tokens']:,} trained tokens"
    return "every trained token audited" if audit["tokens"] else "nothing was trained on"


def _ungraded(summary: Summary, text: Typography) -> str:
    n = sum(summary.ungraded.values())
    if not n:
        return "0 ungraded"
    reasons = sorted(summary.ungraded.items(), key=lambda item: -item[1])
    shown = [f"{count:,} {text.clean(reason)[:80]}" for reason, count in reasons[:3]]
    if len(reasons) > 3:
        shown.append(f"{len(reasons) - 3} other reasons")
    return f"{n:,} ungraded ({'; '.join(shown)})"


def result_lines(
    label: str, summary: Summary, text: Typography, *, interval: bool = True
) -> list[str]:
    """A phase's result: the mean with its error, pass@k, and the reading without errors."""
    name = "accuracy" if summary.binary else "mean reward"
    counts = counted(summary.tasks, "task")
    if summary.episodes != summary.tasks:
        counts += f", {counted(summary.episodes, 'episode')}"
    parts = [f"{text.clean(label)}  {name} {text.estimate(summary.accuracy)} ({counts})"]
    if interval and (bounds := summary.interval()):
        parts.append(f"95 % interval {number(bounds[0])} to {number(bounds[1])}")
    parts += [f"pass@{k} {text.estimate(share)}" for k, share in summary.pass_at.items()]
    lines = [text.join(parts)]
    errored = sum(summary.errors.values()) - summary.errors.get("score", 0)
    if errored and summary.accuracy_without_errors and summary.accuracy:
        graded = text.estimate(summary.accuracy_without_errors)
        lines.append(
            f"  counting {counted(errored, 'error')} as wrong;"
            f" {graded} over the {summary.graded:,} graded alone"
        )
    return lines
