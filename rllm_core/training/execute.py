"""A checked configuration, executed: what `rllm run|eval|train` and the Python calls share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from rllm_core.config.check import Resolved
from rllm_core.engine.evaluate import TaskSet
from rllm_core.engine.jobs import Scorer
from rllm_core.engine.observer import Observer
from rllm_core.engine.run import Place, Run, open_run
from rllm_core.engine.tasks import task_set
from rllm_core.harness import Harness
from rllm_core.plugins import Plugins
from rllm_core.statistics import Summary
from rllm_core.training.train import Trained, train

__all__ = ["Finished", "Parts", "execute"]


@frozen
class Parts:
    """The instances that a run uses; made from the configuration, or given by a Python call."""

    harness: Harness
    scorer: Scorer | None = None


@frozen
class Finished:
    """A run that has ended: where it lies, the summary of each phase, and the training."""

    id: str
    directory: Path
    results: Mapping[str, Summary] = Factory(dict)
    trained: Trained | None = None

    def to_json(self) -> dict[str, Any]:
        """The results as JSON data."""
        data: dict[str, Any] = {"id": self.id, "directory": str(self.directory)}
        data["results"] = {name: summary.to_json() for name, summary in self.results.items()}
        if self.trained is not None:
            data["ended"] = self.trained.ended
            data["model"] = str(self.trained.model)
            if (gain := self.trained.gain) is not None:
                data["gain"] = {"difference": gain.difference, "se": gain.standard_error}
        return data

    @property
    def failed(self) -> int:
        """Rollouts that ended in an error, over all phases that were evaluated."""
        return sum(sum(summary.errors.values()) for summary in self.results.values())


async def execute(
    resolved: Resolved, plugins: Plugins, parts: Parts, place: Place, observer: Observer
) -> Finished:
    """Evaluate or train, as `run.kind` says. The tasks are read before anything is started."""
    settings = resolved.config.run
    training, validation = _task_sets(resolved, parts)
    async with open_run(resolved, plugins, parts.harness, place, observer) as run:
        if settings.kind == "eval":
            finished = await _evaluate(run, training)
        else:
            algorithm = resolved.build_algorithm()
            trained = await train(run, algorithm, training, validation, resume=place.resume)
            finished = _finished(run, trained.validations, trained)
        run.store.set_summary(finished.to_json())
        if finished.trained is not None and settings.require_gain is not None:
            finished.trained.require(settings.require_gain)
    return finished


def _task_sets(resolved: Resolved, parts: Parts) -> tuple[list[TaskSet], TaskSet | None]:
    """The sets to evaluate or train on, and the one to validate on."""
    config = resolved.config
    purpose = "train" if config.run.kind == "train" else "eval"
    sets: list[TaskSet] = []
    for table, benchmark in resolved.build_benchmarks():
        names = [each.name for each in sets]
        sets.append(
            task_set(
                table,
                benchmark,
                purpose=purpose,
                harness=parts.harness,
                scorer=parts.scorer,
                seed=config.run.seed,
                taken=names,
            )
        )
    chosen = resolved.build_validation()
    if chosen is None:
        return sets, None
    table, benchmark = chosen
    validation = task_set(
        table, benchmark, purpose="eval", harness=parts.harness, scorer=parts.scorer,
        seed=config.run.seed,
    )  # fmt: skip
    return sets, validation


async def _evaluate(run: Run, sets: list[TaskSet]) -> Finished:
    attempts = run.resolved.config.run.attempts
    evaluation = run.evaluation()
    results = {
        each.name: await evaluation.run(each.name, each, attempts=attempts, sampling=run.sampling)
        for each in sets
    }
    return _finished(run, results)


def _finished(run: Run, results: Mapping[str, Summary], trained: Trained | None = None) -> Finished:
    info = run.store.info
    return Finished(info.id, info.directory, results, trained)
