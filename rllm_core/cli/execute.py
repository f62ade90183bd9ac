"""What `run`, `eval` and `train` do with a request: load, check, show or execute, report."""

import asyncio
import json
import shlex
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from attrs import evolve, fields, frozen

from rllm_core.cli.options import Request
from rllm_core.cli.streams import lent_output
from rllm_core.errors import ConfigError, RllmError

if TYPE_CHECKING:
    from rllm_core.config import RunConfig
    from rllm_core.engine.observer import Observer
    from rllm_core.engine.run import Place
    from rllm_core.resolve import Chosen, Resolved
    from rllm_core.training.execute import Finished

__all__ = ["Prepared", "Request", "RolloutsFailed", "execute", "execute_request", "prepare"]


TERMINATED = "terminated"


class RolloutsFailed(RllmError):  # noqa: N818 - says what happened
    """A run has ended as it should, except for single rollouts."""

    category = "rollouts"


@frozen
class Prepared:
    """A request that has been checked: what runs, and where."""

    resolved: "Resolved"
    place: "Place"


def execute_request(request: Request) -> int:
    """The exit code. Errors are raised, RolloutsFailed where single rollouts ended in one."""
    prepared = prepare(request)
    if request.dry_run:
        from rllm_core.config import to_toml

        click.echo(to_toml(prepared.resolved.config), nl=False)
        return 0
    with lent_output() as ours:
        running = execute(prepared, quiet=request.json, stream=ours)
        finished = asyncio.run(_until_terminated(running))
    if request.json:
        click.echo(json.dumps(finished.to_json(), indent=2))
    if finished.failed:
        raise _rollouts_failed(finished)
    return 0


async def _until_terminated(run: "Coroutine[Any, Any, Finished]") -> "Finished":
    """Let SIGTERM end a run as Ctrl-C does: cleaned up, on disk as interrupted, resumable."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(run)
    loop.add_signal_handler(signal.SIGTERM, task.cancel, TERMINATED)
    try:
        return await task
    except asyncio.CancelledError as error:
        if TERMINATED in error.args:
            raise KeyboardInterrupt(TERMINATED) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _rollouts_failed(finished: "Finished") -> RolloutsFailed:
    from rllm_core.store import RunStore

    reader = RunStore.read(finished.directory)
    errors = [f"{a.error}: {a.message}" for a in reader.attempts() if a.error is not None]
    reader.close()
    total = sum(summary.episodes for summary in finished.results.values())
    return RolloutsFailed(
        f"{finished.failed} of {total} rollouts failed; the last one: {errors[-1]}",
        remedy=f"mend that; --resume {_reference(finished.directory)} repeats only those",
    )


def _reference(directory: Path) -> str:
    """What `--resume` and `runs show` take for the run in a directory: its id, else the path."""
    from rllm_core.store import runs_directory

    return directory.name if directory.parent == runs_directory() else str(directory)


def prepare(request: Request, objects: Mapping[str, Any] | None = None) -> Prepared:
    """Load and check; `objects` are functions that a Python caller passed ("harness", "scorer")."""
    from rllm_core.cli.resume import refuse_changes, stored_config
    from rllm_core.config import installed_plugins
    from rllm_core.engine.run import Place
    from rllm_core.resolve import check
    from rllm_core.store import find_run

    directory = None if request.resume is None else find_run(request.resume)
    config = request.load() if directory is None else stored_config(directory, request.overrides)
    if request.disable:
        config = _less(config, request.disable)
    resolved = check(config, installed_plugins(request.disable), objects=objects)
    if directory is None:
        return Prepared(resolved, Place.of(config.run.directory))
    refuse_changes(directory, resolved.config)
    return Prepared(resolved, Place(directory, resume=True))


def _less(config: "RunConfig", names: Sequence[str]) -> "RunConfig":
    """The configuration with plugins disabled besides those that it disables itself."""
    disable = tuple(dict.fromkeys((*config.plugins.disable, *names)))
    return evolve(config, plugins=evolve(config.plugins, disable=disable))


async def execute(
    prepared: Prepared, *, quiet: bool = False, stream: TextIO | None = None
) -> "Finished":
    """Run it, printing what happens (to standard output, or `stream`) unless `quiet`."""
    from rllm_core.cli.display import Display
    from rllm_core.engine.observer import Observer

    if quiet:
        return await _watched(prepared, Observer())
    with Display(stream) as display:
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
    except BaseException as error:
        if not observer.run:
            raise  # what may lie in the directory is another process's run
        _report_end(prepared, observer, None)
        if isinstance(error, RllmError) and not isinstance(error, ConfigError):
            again = f"rllm {prepared.resolved.config.run.kind} --resume"
            where = _reference(prepared.place.directory)
            error.remedy = error.remedy or f"what is finished is kept: {again} {where} goes on"
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
        "audit": reader.summary().get("audit"),
        "next": _next(directory, prepared.resolved, finished),
    }
    if finished is not None and finished.trained is not None:
        outcome["reason"] = finished.trained.ended
    reader.close()
    observer.run_finished(outcome)


def _next(directory: Path, resolved: "Resolved", finished: "Finished | None") -> list[str]:
    run = _reference(directory)
    commands = [f"rllm runs show {run}"]
    if finished is None:
        commands.append(f"rllm {resolved.config.run.kind} --resume {run}")
    elif finished.trained is not None:
        model = run if run == directory.name else str(finished.trained.model)
        commands.append(f"rllm eval {_words(resolved.benchmarks[0])} --model {model}")
    return commands


def _words(benchmark: "Chosen") -> str:
    """The benchmark on a command line, with what sets its tasks apart from the default ones."""
    table = benchmark.table
    defaults = {each.alias: each.default for each in fields(benchmark.cls.Options)}
    words = [table.use or table.file]
    if table.use and table.file:
        words += ["--file", table.file]
    for name, value in table.options.items():
        if name != "file" and value != defaults[name]:
            text = value if isinstance(value, str) else json.dumps(value)
            words.append(f"benchmark.{name}={text}")
    return shlex.join(words)
