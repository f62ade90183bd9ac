"""What a combination must satisfy before a run starts. No setting is silently without effect.

Each rule looks at the resolved run and yields what is wrong: the setting, who refuses it, and
who would accept it.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from rllm_core.config.schema import RunSettings
from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins
from rllm_core.plugins.options import problem
from rllm_core.providers import Local, Wire
from rllm_core.resolve.chosen import Chosen, validation_split
from rllm_core.resolve.resolved import Resolved

__all__ = ["violations"]

CAN = {
    "tools": "offer a task's tools to the model",
    "multi_turn": "hold a conversation with a simulated user",
    "images": "show images to the model",
}


def violations(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:
    """Everything that is wrong with the combination."""
    for rule in (_tape, _agent, _sandbox, _judge, _roles, _policy, _training, _validation, _losses):
        yield from rule(run, plugins)


def _tape(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:  # noqa: ARG001 - a rule
    if run.config.run.record and run.config.run.replay is not None:
        yield _refuse(
            run,
            ("run", "record"),
            "has no effect with run.replay: what is replayed is recorded already",
        )


def _refuse(
    run: Resolved, path: tuple[str, ...], what: str, remedy: str | None = None
) -> ConfigError:
    return problem(path, what, run.config.origins.of(path), remedy)


def _accepting(plugins: Plugins, kind: str, accepts: Callable[[Any], bool]) -> str:
    """Installed plugins of a kind that would do; a broken one is passed over."""
    names = []
    for name in plugins.names(kind):
        try:
            if accepts(plugins.load(kind, name)):
                names.append(name)
        except (ConfigError, AttributeError):
            continue
    return ", ".join(names) or f"no installed {kind}"


def _can(feature: str, harness: Any) -> bool:
    return bool(getattr(harness.capabilities, feature))


def _honours(loss: str, backend: Any) -> bool:
    return loss in backend.capabilities.losses


def _benchmarks(run: Resolved) -> tuple[Chosen, ...]:
    return (*run.benchmarks, *((run.validation,) if run.validation else ()))


def _agent(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:
    """The harness can do what the benchmarks need."""
    for benchmark in _benchmarks(run):
        for feature, meaning in CAN.items():
            needed = getattr(benchmark.capabilities, feature)
            if needed and not getattr(run.harness.capabilities, feature):
                able = _accepting(plugins, "harness", functools.partial(_can, feature))
                what = f"harness '{run.harness.name}' cannot {meaning}"
                need = f", which benchmark '{benchmark.name}' needs"
                yield _refuse(run, ("harness", "use"), what + need, f"who can: {able}")


def _sandbox(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:
    """Who needs a sandbox gets one, and none is asked for in vain."""
    needing = [b for b in _benchmarks(run) if b.capabilities.sandbox]
    if run.harness.capabilities.needs_sandbox:
        needing.append(run.harness)
    if needing and run.sandbox is None:
        who = f"{needing[0].kind} '{needing[0].name}'"
        known = ", ".join(plugins.names("sandbox")) or "none; pip install rllm-sandbox-docker"
        what = f"{who} needs a sandbox, and none is chosen"
        yield _refuse(run, ("sandbox",), what, f"--sandbox NAME; installed: {known}")
    own_code = ":" in run.harness.name or run.config.scorer is not None
    if run.sandbox is not None and not needing and not own_code:
        what = f"has no effect: neither harness '{run.harness.name}' nor the benchmark uses one"
        yield _refuse(run, ("sandbox",), what, "leave it out")


def _judge(run: Resolved, _: Plugins) -> Iterator[ConfigError]:
    """A benchmark that is scored by a model has one, or is scored without."""
    for benchmark in _benchmarks(run):
        if benchmark.capabilities.judge and run.scorer is None and "judge" not in run.models:
            what = f"benchmark '{benchmark.name}' is scored by a model, and none is named"
            remedy = "models.judge.name=provider/model   or --scorer NAME scores it without one"
            yield _refuse(run, ("models", "judge"), what, remedy)


def _roles(run: Resolved, _: Plugins) -> Iterator[ConfigError]:
    """A model that nobody would call is an error; the policy's backend serves the policy only."""
    judged = run.scorer is not None or any(b.capabilities.judge for b in _benchmarks(run))
    called = ("policy", "judge") if judged else ("policy",)
    for role in run.config.models:
        path = ("models", role)
        if role not in called:
            what = f"has no effect: the roles that this run calls are {', '.join(called)}"
            yield _refuse(run, path, what, "leave it out")
        elif role != "policy" and isinstance(run.models.get(role), Local):
            what = f"the {role} is a server's model, and '{run.models[role].name}' is none"
            yield _refuse(run, (*path, "name"), what, "provider/model, or give it a base_url")


def _policy(run: Resolved, _: Plugins) -> Iterator[ConfigError]:
    """Where the policy comes from agrees with the rest."""
    policy = run.models.get("policy")
    path = ("models", "policy")
    if isinstance(policy, Local):
        if run.config.policy.api_key_env is not None:
            what = f"model '{policy.name}' is loaded on this machine and needs no key"
            yield _refuse(run, (*path, "api_key_env"), what, "leave it out")
    elif isinstance(policy, Wire):
        if run.config.run.kind == "train":
            what = f"'{policy.name}' is served by {policy.base_url} and cannot be trained here"
            remedy = f"weights of that name on the hub: hf/{policy.model} or hf/{policy.name}"
            yield _refuse(run, (*path, "name"), what, remedy)
        elif run.config.backend is not None:
            what = f"has no effect: model '{policy.name}' is served by {policy.base_url}"
            yield _refuse(run, ("backend",), what, "leave it out")
    yield from _sampling(run)


def _sampling(run: Resolved) -> Iterator[ConfigError]:
    """Sampling settings that a model's provider would answer with an error."""
    for role, model in run.models.items():
        table = run.config.models.get(role)
        provider = model.provider if isinstance(model, Wire) else None
        for name in provider.refuses if provider else ():
            if provider and getattr(table, name, None) is not None:
                what = f"provider '{provider.name}' does not take {name}"
                yield _refuse(run, ("models", role, name), what, "leave it out")


def _training(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:
    if run.config.run.kind != "train" or run.backend is None or run.algorithm is None:
        return
    size, least = run.config.run.group_size, run.algorithm.cls.min_group
    if size < least:
        what = f"algorithm '{run.algorithm.name}' compares at least {least} attempts, not {size}"
        yield _refuse(run, ("run", "group_size"), what, f"run.group_size={least} or more")
    if run.config.policy.temperature == 0:
        what = "at temperature 0 all attempts at a task would be the same: nothing to compare"
        yield _refuse(run, ("models", "policy", "temperature"), what, "a number above 0, like 1")
    if not run.backend.capabilities.trains:
        able = _accepting(plugins, "backend", lambda cls: cls.capabilities.trains)
        what = f"backend '{run.backend.name}' cannot train"
        yield _refuse(run, ("backend", "use"), what, f"who can: {able}")
    checkpoints = ("run", "checkpoint_every")
    if not run.backend.capabilities.resumes and checkpoints in run.config.origins.places:
        what = f"backend '{run.backend.name}' cannot save and resume"
        yield _refuse(run, checkpoints, what, "leave it out")


def _validation(run: Resolved, _: Plugins) -> Iterator[ConfigError]:
    """Settings of the validation tasks need some; a default, as stored runs have it, is none."""
    if run.config.run.kind != "train" or run.validation is not None:
        return
    first = run.benchmarks[0]
    if validation_split(first) is not None:
        return
    defaults = RunSettings()
    for name in ("eval_every", "eval_temperature", "require_gain"):
        if getattr(run.config.run, name) != getattr(defaults, name):
            what = f"has no effect: benchmark '{first.name}' has no tasks to validate on"
            remedy = "name some: validation.use=NAME or validation.file=FILE, or leave it out"
            yield _refuse(run, ("run", name), what, remedy)


def _losses(run: Resolved, plugins: Plugins) -> Iterator[ConfigError]:
    """The backend honours every loss that the algorithm feeds."""
    if run.backend is None or run.algorithm is None:
        return
    try:
        needs = run.algorithm.make().loss.needs
    except ConfigError as error:  # the algorithm refuses its options
        yield error
        return
    except (ValueError, TypeError) as error:
        yield _refuse(run, ("algorithm",), f"{type(error).__name__}: {error}")
        return
    for loss in sorted(needs - run.backend.capabilities.losses):
        able = _accepting(plugins, "backend", functools.partial(_honours, loss))
        what = (
            f"backend '{run.backend.name}' cannot honour the loss '{loss}' "
            f"of algorithm '{run.algorithm.name}'"
        )
        remedy = f"honoured by: {able}   choose one of those, or another algorithm"
        yield _refuse(run, ("algorithm",), what, remedy)
