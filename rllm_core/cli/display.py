"""What a run prints while it happens.

On a terminal the last line lives: it is redrawn four times a second until its phase ends.
Elsewhere it is printed every few seconds. Results, rows of the step table, notes and the
account are ordinary lines in both. Nothing but this module's stream is written to, so a
command whose standard output is data hands it standard error, or uses a plain `Observer`.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from rllm_core.cli.account import account_line, result_lines
from rllm_core.cli.progress import Progress, StepTable
from rllm_core.cli.typography import Typography, counted, short
from rllm_core.engine.observer import Observer
from rllm_core.statistics import Summary
from rllm_core.types import Episode

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["HEADER", "Display"]

HEADER = ("benchmark", "model", "harness", "sandbox", "backend", "algorithm")
"""Keys of `run_started` that the first line shows, in this order."""
PLAIN_SECONDS = 5.0


class Display(Observer):
    """Prints a run to a stream (standard output). A context manager: leaving it tidies up.

    `run_started` takes a mapping with `id`, `directory`, `kind` ("eval" or "train"), `steps`
    of a training run, and any of `HEADER`; `run_finished` one with `status`, `reason` (why it
    ended), `summary` (of all the run's episodes), `events` (how often each kind happened) and
    `next` (commands to try). What is left out is not shown.
    """

    def __init__(
        self, stream: TextIO | None = None, *, plain_seconds: float = PLAIN_SECONDS
    ) -> None:
        from rich.console import Console

        self._stream = stream or sys.stdout
        self._console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
        self._text = Typography.of(self._stream)
        self._plain_seconds = plain_seconds
        self._printed = time.monotonic()
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._run: Mapping[str, Any] = {}
        self._table = StepTable(width=self._console.width)
        self._results: dict[str, Summary] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the living line; safe to call twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def run_started(self, run: Mapping[str, Any]) -> None:
        """The header: what runs, and where it is kept."""
        self._run = run
        self._table.steps = int(run.get("steps") or 0)
        what = self._text.join(self._text.clean(str(run[key])) for key in HEADER if run.get(key))
        where = f"run {run['id']}" if "id" in run else ""
        if "directory" in run:
            where += f"  {self._text.clean(short(Path(run['directory'])))}"
        gap = self._console.width - len(what) - len(where)
        if gap >= 2:
            self._print(f"{what}{' ' * gap}{where}")
        else:
            self._print(what)
            self._print(where)

    def phase_started(self, name: str, total: int, done: int = 0) -> None:
        """A set of rollouts begins."""
        self._flush_table()
        self._follow(Progress(name, total, done))
        if done:
            self._print(f"{done:,} of {counted(total, 'episode')} were finished before")

    def episode_finished(self, phase: str, episode: Episode) -> None:
        """One more; a plain line now and then."""
        if self._progress is None or self._progress.name != phase:
            self._follow(Progress(phase))
        progress = self._progress
        assert progress is not None
        progress.add(episode)
        # between the rows of a step table, silence is no sign of trouble for longer
        patience = self._plain_seconds * (1 if progress.total else 12)
        due = time.monotonic() - self._printed >= patience
        if self._live is None and due:
            self._print(f"{self._text.clean(phase)}  {progress.line(self._text)}")

    def phase_finished(self, name: str, summary: Any) -> None:
        """The phase's result."""
        self.close()
        self._progress = None
        self._results[name] = summary
        evaluating = self._run.get("kind") != "train"
        for line in result_lines(self._label(name), summary, self._text, interval=evaluating):
            self._print(line)

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Step number `step`, counted from 0, has ended: perhaps a row of the table."""
        for line in self._table.add(step + 1, metrics, self._text):
            self._print(line)
        if self._progress is not None:
            self._follow(Progress(self._progress.name))

    def note(self, message: str) -> None:
        """A line in between."""
        self._print(self._text.clean(message))

    def run_finished(self, outcome: Mapping[str, Any]) -> None:
        """How it ended: accuracy before and after, the account, what to try next."""
        self.close()
        self._flush_table()
        before, after = self._results.get("before"), self._results.get("after")
        if before and after and before.accuracy and after.accuracy:
            change = f"{self._text.estimate(before.accuracy)} {self._text.arrow} "
            name = "accuracy" if before.binary and after.binary else "mean reward"
            tasks = counted(after.tasks, "task")
            self._print(f"{name} {change}{self._text.estimate(after.accuracy)} ({tasks})")
        status = outcome.get("status", "finished")
        if status != "finished" or outcome.get("reason"):
            reason = self._text.clean(str(outcome.get("reason") or ""))
            self._print(f"{status}: {reason}" if reason else status)
        if isinstance(summary := outcome.get("summary"), Summary):
            trained = self._run.get("kind") == "train"
            events = outcome.get("events") or {}
            audit = outcome.get("audit")
            self._print(account_line(summary, events, self._text, trained=trained, audit=audit))
        if commands := outcome.get("next"):
            self._print("next: " + self._text.join(commands))

    def _label(self, name: str) -> str:
        if self._run.get("kind") != "train":
            return name
        labels = {"before": "before training", "after": "after training"}
        return labels.get(name, f"step {name.removeprefix('step')}")

    def _flush_table(self) -> None:
        for line in self._table.flush(self._text):
            self._print(line)

    def _follow(self, progress: Progress) -> None:
        """Show this phase's progress in the living line, where there can be one."""
        self._progress = progress
        if self._console.is_terminal and not self._console.is_dumb_terminal and not self._live:
            from rich.live import Live

            self._live = Live(
                console=self._console, get_renderable=self._footer, transient=True,
                refresh_per_second=4, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()

    def _footer(self) -> Any:
        from rich.text import Text

        line = ""
        if self._progress is not None:
            line = self._progress.live_line(self._text)
            if self._table.last or self._progress.name == "train":
                line = f"step {self._table.last + 1} {line}"
        return Text(line, no_wrap=True, overflow="crop", style="dim")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)
        self._printed = time.monotonic()
