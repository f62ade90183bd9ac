"""What `run`, `eval` and `train` do with a request: load, check, show or execute, report."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from rllm_core.cli.options import Request

if TYPE_CHECKING:
    from rllm_core.config import RunConfig
    from rllm_core.engine.observer import Observer
    from rllm_core.engine.run import Place
    from rllm_core.resolve import Resolved
    from rllm_core.training.execute import Finished

__all__ = ["Prepared", "Request", "execute", "execute_request", "prepare"]


@frozen
class Prepared:
    """A request that has been checked: what runs, and where."""

    resolved: "Resolved"
    place: "Place"


def execute_request(request: Request) -> int:
    """The exit code: 0, or 1 where rollouts failed. Errors are raised."""
    prepared = prepare(request)
    if request.dry_run:
        from rllm_core.config import to_toml

        click.echo(to_toml(prepared.resolved.config), nl=False)
        return 0
    finished = asyncio.run(execute(prepared, quiet=request.json))
    if request.json:
        click.echo(json.dumps(finished.to_json(), indent=2))
    if finished.failed:
        advice = f"--resume {finished.id} repeats only those"
        click.echo(f"error: {finished.failed} rollouts failed; {advice}", err=True)
    return 1 if finished.failed else 0


def prepare(request: Request, objects: Mapping[str, Any] | None = None) -> Prepared:
    """Load and check; `objects` are functions that a Python caller passed ("harness", "scorer")."""
    from rllm_core.engine.run import Place
    from rllm_core.resolve import check
    from rllm_core.store import find_run

    directory = None if request.resume is None else find_run(request.resume)
    config = request.load() if directory is None else _stored(request, directory)
    resolved = check(config, objects=objects)
    if directory is not None:
        return Prepared(resolved, Place(directory, resume=True))
    return Prepared(resolved, Place.of(config.run.directory))


def _stored(request: Request, directory: Path) -> "RunConfig":
    """The configuration of the run that goes on, with what was typed on top of it."""
    from rllm_core.config import load
    from rllm_core.store.reader import CONFIG

    text = (directory / CONFIG).read_text("utf-8")
    return load(text=text, overrides=request.overrides)


async def execute(prepared: Prepared, *, quiet: bool = False) -> "Finished":
    """Run it, printing what happens unless `quiet`."""
    from rllm_core.cli.display import Display
    from rllm_core.engine.observer import Observer

    if quiet:
        return await _watched(prepared, Observer())
    with Display() as display:
        return await _watched(prepared, display)


async def _watched(prepared: Prepared, watching: "Observer") -> "Finished":
    """Run it under an observer and the run's trackers, which are told of the end too."""
    from rllm_core.engine.observer import Tracked
    from rllm_core.plugins import Plugins
    from rllm_core.training.execute import execute as run

    trackers = [chosen.make() for chosen in prepared.resolved.trackers]
    events = Plugins.installed().hooks(trackers)
    observer = Tracked(watching, events)
    try:
        finished = await run(prepared.resolved, prepared.place, observer)
    except BaseException:
        _report_end(prepared, observer, None)
        raise
    else:
        _report_end(prepared, observer, finished)
        return finished
    finally:
        await events.close()


def _report_end(prepared: Prepared, observer: "Observer", finished: "Finished | None") -> None:
    """Tell the observer how the run ended, from what lies on disk."""
    from rllm_core.cli.account import count_events
    from rllm_core.statistics import summarize
    from rllm_core.store import RunReader
    from rllm_core.store.schema import DATABASE

    directory = prepared.place.directory
    if not (directory / DATABASE).exists():
        return
    reader = RunReader(directory)
    outcome: dict[str, Any] = {
        "status": "finished" if finished is not None else reader.info.status,
        "summary": summarize(reader.attempts()),
        "events": count_events(e for e in reader.events() if e.kind != "ended"),
        "next": _next(reader.info.id, prepared.resolved, finished),
    }
    if finished is not None and finished.trained is not None:
        outcome["reason"] = finished.trained.ended
    reader.close()
    observer.run_finished(outcome)


def _next(run_id: str, resolved: "Resolved", finished: "Finished | None") -> list[str]:
    commands = [f"rllm runs show {run_id}"]
    if finished is None:
        commands.append(f"rllm {resolved.config.run.kind} --resume {run_id}")
    elif finished.trained is not None:
        commands.append(f"rllm eval {resolved.benchmarks[0].name} --model {run_id}")
    return commands
