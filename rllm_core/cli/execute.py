"""What `run`, `eval` and `train` do with a request: load, check, show or execute, report."""

import asyncio
import json
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from rllm_core.cli.options import Request

if TYPE_CHECKING:
    from pathlib import Path

    from rllm_core.config import RunConfig
    from rllm_core.training.execute import Finished

__all__ = ["execute_request"]


def execute_request(request: Request) -> int:
    """The exit code: 0, or 1 where rollouts failed. Errors are raised."""
    from rllm_core.engine.run import Place
    from rllm_core.resolve import check

    directory = _resumed(request)
    config = request.load() if directory is None else _stored(request, directory)
    resolved = check(config)
    if request.dry_run:
        from rllm_core.config import to_toml

        click.echo(to_toml(resolved.config), nl=False)
        return 0
    place = Place(directory, resume=True) if directory else Place.of(config.run.directory)
    return _execute(resolved, place, as_json=request.json)


def _resumed(request: Request) -> "Path | None":
    if request.resume is None:
        return None
    from rllm_core.store import find_run

    return find_run(request.resume)


def _stored(request: Request, directory: "Path") -> "RunConfig":
    """The configuration of the run that goes on, with what was typed on top of it."""
    from rllm_core.config import load
    from rllm_core.store.reader import CONFIG

    return load(text=(directory / CONFIG).read_text("utf-8"), overrides=request.overrides)


def _execute(resolved: Any, place: Any, *, as_json: bool) -> int:
    from rllm_core.cli.display import Display
    from rllm_core.engine.observer import Observer
    from rllm_core.training.execute import execute

    observer: Any = Observer() if as_json else Display()
    with nullcontext() if as_json else observer:
        try:
            finished = asyncio.run(execute(resolved, place, observer))
        except BaseException as error:
            _ended(observer, place.directory, resolved, reason=error)
            raise
        _ended(observer, place.directory, resolved, finished=finished)
    if as_json:
        click.echo(json.dumps(finished.to_json(), indent=2))
    if finished.failed:
        click.echo(
            f"{finished.failed} rollouts failed; --resume {finished.id} repeats only those",
            err=True,
        )
    return 1 if finished.failed else 0


def _ended(
    observer: Any,
    directory: "Path",
    resolved: Any,
    *,
    finished: "Finished | None" = None,
    reason: BaseException | None = None,
) -> None:
    """Tell the observer how the run ended, from what lies on disk."""
    from rllm_core.statistics import summarize
    from rllm_core.store import RunReader
    from rllm_core.store.schema import DATABASE

    if not (directory / DATABASE).exists():
        return
    reader = RunReader(directory)
    run_id = reader.info.id
    outcome: dict[str, Any] = {
        "status": "finished" if reason is None else reader.info.status,
        "summary": summarize(reader.attempts()),
        "events": Counter(event.kind for event in reader.events()),
        "next": _next(run_id, resolved, finished),
    }
    if finished is not None and finished.trained is not None:
        outcome["reason"] = finished.trained.ended
    reader.close()
    observer.run_finished(outcome)


def _next(run_id: str, resolved: Any, finished: "Finished | None") -> list[str]:
    if finished is None:
        kind = resolved.config.run.kind
        return [f"rllm runs show {run_id}", f"rllm {kind} --resume {run_id}"]
    commands = [f"rllm runs show {run_id}"]
    if finished.trained is not None:
        commands.append(f"rllm eval {resolved.benchmarks[0].name} --model {run_id}")
    return commands
