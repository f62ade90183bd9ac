"""Training from a checked configuration: baseline, the loop, the final score, the model."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from rllm_core.algorithms import Algorithm
from rllm_core.backend import LoadedModel, OptimParams
from rllm_core.config import RunSettings
from rllm_core.engine.evaluate import TaskSet
from rllm_core.engine.jobs import Sampling
from rllm_core.engine.run import Run
from rllm_core.errors import ConfigError, RllmError
from rllm_core.statistics import Estimate, Summary, summarize
from rllm_core.training.curriculum import Curriculum
from rllm_core.training.groups import PHASE, GroupRunner
from rllm_core.training.loop import Loop, LoopSettings

__all__ = ["Gain", "NoGain", "Trained", "train"]


class NoGain(RllmError):  # noqa: N818 - says what happened
    """The run asked for a gain in accuracy (`run.require_gain`) that did not come."""

    category = "gain"


@frozen
class Gain:
    """Accuracy before and after, and the difference in standard errors of the difference."""

    before: Estimate
    after: Estimate

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after.mean - self.before.mean

    @property
    def standard_error(self) -> float:
        """Of the difference, as if the two were independent (the tasks are the same: cautious)."""
        return float(((self.before.se or 0.0) ** 2 + (self.after.se or 0.0) ** 2) ** 0.5)


@frozen
class Trained:
    """How training ended: why, the scores of the validation phases, where the model lies."""

    ended: str
    validations: Mapping[str, Summary]
    model: Path

    @property
    def gain(self) -> Gain | None:
        """Before and after, where both were scored."""
        scored = [self.validations.get(phase) for phase in ("before", "after")]
        estimates = [s.accuracy for s in scored if s is not None and s.accuracy is not None]
        return Gain(*estimates) if len(estimates) == len(scored) else None

    def require(self, standard_errors: float) -> None:
        """Raise NoGain unless accuracy rose by more than this many standard errors."""
        gain = self.gain
        if gain is None:
            raise NoGain("no accuracy before and after: run.require_gain cannot be judged")
        if gain.difference <= standard_errors * gain.standard_error:
            raise NoGain(
                f"accuracy went from {gain.before.mean:.3f} to {gain.after.mean:.3f}: that is not "
                f"{standard_errors:g} standard errors ({gain.standard_error:.3f}) more",
                remedy="more steps (run.steps=…), another seed, or a higher learning rate",
            )


async def train(
    run: Run,
    algorithm: Algorithm,
    training: Sequence[TaskSet],
    validation: TaskSet | None,
    *,
    resume: bool = False,
) -> Trained:
    """Train the run's policy to the end, validate it, and export its weights."""
    loaded = _trainable(run)
    validations: dict[str, Summary] = {}
    loop = Loop(
        loaded=loaded,
        algorithm=algorithm,
        groups=_groups(run, training),
        gateway=run.gateway,
        store=run.store,
        settings=_settings(run.resolved.config.run, loaded),
        validate=lambda phase: _validate(run, validation, phase, validations),
        on_step=run.observer.step_finished,
    )
    if resume:
        await loop.restore()
        for phase in run.store.phases():
            if phase not in (PHASE, "after"):
                validations[phase] = summarize(run.store.attempts(phase))
    ended = await loop.run()
    if "after" not in validations:
        await _validate(run, validation, "after", validations)
    return Trained(ended, validations, await export(loaded, run.store.directory))


def _trainable(run: Run) -> LoadedModel:
    if run.loaded is None:
        raise ConfigError(
            "the policy is a server's model: its weights cannot be trained from here",
            remedy="name a model that a backend loads (smollm2-135m, a directory, a hub name)",
        )
    return run.loaded


def _groups(run: Run, training: Sequence[TaskSet]) -> GroupRunner:
    settings = run.resolved.config.run
    tasks = [(task, tasks.scorer) for tasks in training for task in tasks.tasks]
    return GroupRunner(
        rollouts=run.rollouts,
        curriculum=Curriculum(tasks, settings.seed),
        store=run.store,
        size=settings.group_size,
        sampling=run.sampling,
        slots=asyncio.Semaphore(settings.concurrency),
        on_episode=run.observer.episode_finished,
    )


def _settings(settings: RunSettings, loaded: LoadedModel) -> LoopSettings:
    return LoopSettings(
        steps=settings.steps,
        groups_per_step=settings.groups_per_step,
        max_staleness=settings.max_staleness,
        optim=OptimParams(settings.learning_rate or loaded.learning_rate),
        eval_every=settings.eval_every,
        checkpoint_every=settings.checkpoint_every,
        keep_checkpoints=settings.keep_checkpoints,
        max_error_share=settings.max_error_share,
    )


async def _validate(
    run: Run, validation: TaskSet | None, phase: str, validations: dict[str, Summary]
) -> None:
    """Score the policy as it is now, greedily unless the configuration says otherwise."""
    if validation is None:
        return
    base, temperature = run.sampling, run.resolved.config.run.eval_temperature
    sampling = Sampling(temperature, base.top_p, base.top_k, base.max_tokens)
    validations[phase] = await run.evaluation().run(phase, validation, sampling=sampling)


async def export(loaded: LoadedModel, directory: Path) -> Path:
    """The trained weights as a directory that others load; replaces an earlier export."""
    final, fresh = directory / "export", directory / "export.new"
    shutil.rmtree(fresh, ignore_errors=True)
    await loaded.model.export(fresh)
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)
    return final
