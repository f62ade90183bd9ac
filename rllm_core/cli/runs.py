"""`rllm runs`: the runs there are, and what happened in one of them.

Both commands also look at runs that are being written by another process this moment.
"""

import contextlib
import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from rllm_core.errors import RllmError

if TYPE_CHECKING:
    from rllm_core.cli.report import Report
    from rllm_core.cli.typography import Typography
    from rllm_core.store import RunReader

__all__ = ["runs"]


@click.group()
def runs() -> None:
    """Look at the runs that are kept under RLLM_HOME, or anywhere by path."""


@runs.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a run.")
def list_command(as_json: bool) -> None:
    """List runs, the newest first."""
    from rllm_core.cli.report import Report, row
    from rllm_core.store import RunStore, list_runs, runs_directory

    reports: list[Report] = []
    for directory in list_runs():
        try:
            reader = RunStore.read(directory)
        except RllmError as error:  # a broken run hides no other
            click.echo(f"left out: {error.message}", err=True)
            continue
        reports.append(Report.of(reader))
        reader.close()
    if as_json:
        _echo_json([row(report) for report in reports])
    elif reports:
        _echo_table(reports)
    else:
        click.echo(f"There are no runs in {runs_directory()}. To make one: rllm eval --help")


@runs.command("show")
@click.argument("run")
@click.option("--episode", metavar="ID", help="Show one episode: its conversation and tokens.")
@click.option("--episodes", is_flag=True, help="List the episodes, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_command(run: str, episode: str | None, episodes: bool, as_json: bool) -> None:
    """Show a RUN (its id, the beginning of its id, its name or its path)."""
    from rllm_core.cli.typography import Typography
    from rllm_core.store import RunStore, find_run

    text = Typography.of(sys.stdout)
    with contextlib.closing(RunStore.read(find_run(run))) as reader:
        if episode is not None:
            data, lines = _one_episode(reader, episode, text)
        elif episodes:
            data, lines = _all_episodes(reader, text)
        else:
            data, lines = _whole_run(reader, text)
        if as_json:
            _echo_json(data)
            return
        for line in lines:
            click.echo(line)


@runs.command("audit")
@click.argument("run")
@click.option("--token", metavar="EPISODE/STEP/INDEX", help="Tell one token's story instead.")
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="Sequences of each kept version to score again; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit_command(run: str, token: str | None, sample: int, as_json: bool) -> int:
    """Check where every trained token of a RUN comes from; exit 1 where one is not in order."""
    from rllm_core.cli.audit import audited, token_story
    from rllm_core.cli.typography import Typography
    from rllm_core.store import RunStore, find_run

    text = Typography.of(sys.stdout)
    with contextlib.closing(RunStore.read(find_run(run))) as reader:
        if token is not None:
            code, (data, lines) = 0, token_story(reader, token, text)
        else:
            code, (data, lines) = audited(reader, sample, text)
        if as_json:
            _echo_json(data)
            return code
        for line in lines:
            click.echo(line)
        return code


Shown = tuple[Any, Iterator[str]]
"""Data for --json, and lines for people."""


def _one_episode(reader: "RunReader", ref: str, text: "Typography") -> Shown:
    from rllm_core.cli.conversation import conversation
    from rllm_core.serialize import to_json

    episode = reader.episode(ref)
    return to_json(episode), conversation(episode, text)


def _all_episodes(reader: "RunReader", text: "Typography") -> Shown:
    from rllm_core.cli.conversation import grade
    from rllm_core.serialize import to_json

    rows = list(zip(reader.episode_ids(), reader.attempts(), strict=True))
    lines = (
        text.join([text.clean(name), text.clean(a.task), grade(a.graded, text), a.stop.value])
        for name, a in rows
    )
    return [{"id": name, **to_json(attempt)} for name, attempt in rows], lines


def _whole_run(reader: "RunReader", text: "Typography") -> Shown:
    from rllm_core.cli.report import Report

    report = Report.of(reader)
    return report.to_json(), _show(report, text)


def _echo_json(data: Any) -> None:
    click.echo(json.dumps(_finite(data), indent=2))


def _finite(data: Any) -> Any:
    """JSON has no NaN and no infinities: they become null."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


HEADINGS = ("id", "kind", "name", "benchmark", "model", "status", "result", "when")
LEAST_NEEDED = ("name", "when", "kind", "model", "benchmark")
"""Columns that a narrow terminal goes without, in this order."""


def _echo_table(reports: "Sequence[Report]") -> None:
    from rllm_core.cli.typography import Typography

    text = Typography.of(sys.stdout)
    rows = [dict(zip(HEADINGS, HEADINGS, strict=True))]
    rows += [_cells(report, text) for report in reports]
    widths = {heading: max(len(row[heading]) for row in rows) for heading in HEADINGS}
    for heading in LEAST_NEEDED:
        if sum(widths.values()) + 2 * len(widths) - 2 > shutil.get_terminal_size().columns:
            del widths[heading]
    for row in rows:
        click.echo("  ".join(f"{row[h]:<{width}}" for h, width in widths.items()).rstrip())


def _cells(report: "Report", text: "Typography") -> dict[str, str]:
    from rllm_core.cli.report import when

    info, names = report.info, report.names
    cells = [info.id, info.kind, info.name or "", names["benchmark"], names["model"]]
    cells += [info.status, _result(report, text), when(info.created)]
    return dict(zip(HEADINGS, map(text.clean, cells), strict=True))


def _result(report: "Report", text: "Typography") -> str:
    """0.16 → 0.94 ± 0.02 of a training run, else the result of the (first) benchmark."""
    results = list(report.results.values())
    if not results:
        return ""
    if report.info.kind != "train":
        more = f" and {len(results) - 1} more" if len(results) > 1 else ""
        return text.estimate(results[0].accuracy) + more
    before = results[0].accuracy
    start = "" if before is None or len(results) == 1 else f"{before.mean:.2f} {text.arrow} "
    return start + text.estimate(results[-1].accuracy)


def _show(report: "Report", text: "Typography") -> Iterator[str]:
    from rllm_core.cli.account import account_line, result_lines
    from rllm_core.cli.report import when
    from rllm_core.cli.typography import number, short

    info = report.info
    titles = [info.name or "", *report.names.values(), info.kind, info.status, when(info.created)]
    yield f"run {info.id}  " + text.join(map(text.clean, titles))
    if report.ending:
        yield f"{info.status}: {text.clean(report.ending)}"
    for phase, summary in report.phases.items():
        yield from result_lines(phase, summary, text, interval=info.kind == "eval")
    if report.rewards:
        first, last = number(report.rewards[0]), number(report.rewards[-1])
        curve = text.curve(report.rewards, 40)
        yield f"reward over {report.steps:,} steps  {first} {curve} {last}"
    whole = report.whole
    tokens = f"{whole.prompt_tokens:,} prompt + {whole.completion_tokens:,} completion tokens"
    yield text.join([f"{whole.calls:,} calls", tokens])
    trained = info.kind == "train"
    yield account_line(whole, report.events, text, trained=trained, audit=report.audit)
    for category, (n, example) in report.errors.items():
        yield f"  {n:,} {text.clean(category)}: {text.clean(example)[:200]}"
    for step, directory in report.checkpoints:
        yield f"checkpoint of step {step}: {text.clean(short(directory))}"
    yield f"config: {text.clean(short(info.directory / 'config.toml'))}"
