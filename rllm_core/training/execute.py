"""A checked configuration, executed: what `rllm run|eval|train` and the Python calls share."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, evolve, frozen

from rllm_core.algorithms import Algorithm
from rllm_core.config import BenchmarkTable
from rllm_core.engine.evaluate import TaskSet
from rllm_core.engine.observer import Observer
from rllm_core.engine.run import Place, Run, open_run
from rllm_core.engine.tasks import task_set
from rllm_core.harness import Harness
from rllm_core.resolve import Resolved, validation_split
from rllm_core.statistics import Summary
from rllm_core.store import RunReader
from rllm_core.training.audit import Audit, audit
from rllm_core.training.train import Trained, train

__all__ = ["Finished", "execute"]


@frozen
class Finished:
    """A run that has ended: where it lies, what each phase and the training came to, the audit."""

    id: str
    directory: Path
    results: Mapping[str, Summary] = Factory(dict)
    trained: Trained | None = None
    audit: Audit | None = None

    def to_json(self) -> dict[str, Any]:
        """The results as JSON data."""
        data: dict[str, Any] = {"id": self.id, "directory": str(self.directory)}
        data["results"] = {name: summary.to_json() for name, summary in self.results.items()}
        if self.trained is not None:
            data["ended"] = self.trained.ended
            data["model"] = str(self.trained.model)
            if (gain := self.trained.gain) is not None:
                data["gain"] = {"difference": gain.difference, "se": gain.standard_error}
        if self.audit is not None:
            data["audit"] = self.audit.to_json()
        return data

    @property
    def failed(self) -> int:
        """Rollouts that ended in an error, over all phases that were evaluated."""
        return sum(sum(summary.errors.values()) for summary in self.results.values())


async def execute(resolved: Resolved, place: Place, observer: Observer) -> Finished:
    """Evaluate or train, as `run.kind` says. The tasks are read before anything is started."""
    settings = resolved.config.run
    harness: Harness = resolved.harness.make()
    sets = _task_sets(resolved, harness)
    validation = _validation(resolved, harness) if settings.kind == "train" else None
    async with open_run(resolved, harness, place, observer) as run:
        if settings.kind == "eval":
            finished = await _evaluate(run, sets)
        else:
            finished = await _train(run, sets, validation, resume=place.resume)
        run.store.set_summary(finished.to_json())
        if finished.trained is not None and settings.require_gain is not None:
            finished.trained.require(settings.require_gain)
    return finished


def _task_sets(resolved: Resolved, harness: Harness) -> list[TaskSet]:
    sets: list[TaskSet] = []
    for chosen in resolved.benchmarks:
        taken = [each.name for each in sets]
        seed = resolved.config.run.seed
        sets.append(task_set(chosen, harness, resolved.scorer, seed=seed, taken=taken))
    return sets


def _validation(resolved: Resolved, harness: Harness) -> TaskSet | None:
    """What `[validation]` names, else the evaluation split of the first benchmark, if any."""
    seed, chosen = resolved.config.run.seed, resolved.validation
    if chosen is None:
        first = resolved.benchmarks[0]
        split = validation_split(first)
        if split is None:
            return None
        plain = BenchmarkTable(use=first.table.use, split=split)
        chosen = evolve(first, table=plain)
    return task_set(chosen, harness, resolved.scorer, seed=seed)


async def _evaluate(run: Run, sets: list[TaskSet]) -> Finished:
    attempts = run.resolved.config.run.attempts
    evaluation = run.evaluation()
    results = {
        each.name: await evaluation.run(each.name, each, attempts=attempts, sampling=run.sampling)
        for each in sets
    }
    return _finished(run, results)


async def _train(
    run: Run, sets: list[TaskSet], validation: TaskSet | None, *, resume: bool
) -> Finished:
    assert run.resolved.algorithm is not None, "training needs an algorithm: checked before"
    algorithm: Algorithm = run.resolved.algorithm.make()
    trained = await train(run, algorithm, sets, validation, resume=resume)
    await run.store.flush()
    checked = await asyncio.to_thread(_audit, run.store.directory)
    return evolve(_finished(run, trained.validations), trained=trained, audit=checked)


def _audit(directory: Path) -> Audit:
    """The structural audit, over a connection of its own: it may take seconds."""
    with contextlib.closing(RunReader(directory)) as reader:
        return audit(reader)


def _finished(run: Run, results: Mapping[str, Summary]) -> Finished:
    info = run.store.info
    return Finished(info.id, info.directory, results)
