"""From a configuration to the parts of a run: plugins loaded, options built, all of it checked.

Everything that can be known to be wrong before a run starts is found here, and told at once.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from rllm_core.config import installed_plugins, rules_of
from rllm_core.config.schema import BenchmarkTable, ModelTable, PluginTable, RunConfig
from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins
from rllm_core.plugins.options import problem, raise_all
from rllm_core.providers import Local, Wire, default_model, resolve_model
from rllm_core.resolve.chosen import Chooser, Chosen, validation_split
from rllm_core.resolve.resolved import Resolved
from rllm_core.resolve.rules import violations

__all__ = ["Chosen", "Resolved", "check", "validation_split"]


def check(
    config: RunConfig,
    plugins: Plugins | None = None,
    *,
    objects: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """The resolved run; ConfigError with every problem that was found.

    `objects` holds what a Python caller passed itself instead of a name: a rollout function or
    Harness class as "harness", an evaluator function as "scorer". Keys are looked up in
    `environ` (default: the process's), only to see that they are there.
    """
    plugins = (plugins or installed_plugins()).without(rules_of(config))
    chooser = Chooser(config, plugins, objects or {})
    run = _choose(config, chooser, environ)
    raise_all(chooser.problems)
    assert run is not None
    raise_all(violations(run, plugins))
    _construct(run)
    return attrs.evolve(run, config=_complete(run), entries=tuple(plugins.loaded()))


def _choose(
    config: RunConfig, chooser: Chooser, environ: Mapping[str, str] | None
) -> Resolved | None:
    models = _models(config, chooser, environ)
    if not config.benchmark:
        remedy = "name one on the command line, or write [benchmark] use = NAME"
        chooser.problems.append(ConfigError("no benchmark is named", remedy=remedy))
    several = len(config.benchmark) > 1
    benchmarks = [
        chooser.benchmark(
            ("benchmark", str(i)) if several else ("benchmark",), ("benchmark", str(i)), table
        )
        for i, table in enumerate(config.benchmark)
    ]
    validation = None
    if config.validation is not None:
        table = _validation(config.validation, config.benchmark)
        validation = chooser.benchmark(("validation",), ("validation",), table)
    harness = chooser.harness(config.harness)
    scorer = chooser.scorer(config.scorer)
    sandbox, backend, algorithm = (
        None if table is None else chooser.plugin(kind, (kind,), table)
        for kind, table in (
            ("sandbox", config.sandbox),
            ("backend", _backend(config, models.get("policy"))),
            ("algorithm", config.algorithm),
        )
    )
    trackers = [
        chooser.plugin("tracker", ("trackers", str(i)), table)
        for i, table in enumerate(config.trackers)
    ]
    if chooser.problems or harness is None:
        return None
    return Resolved(
        config=config,
        benchmarks=tuple(each for each in benchmarks if each),
        validation=validation,
        harness=harness,
        scorer=scorer,
        sandbox=sandbox,
        models=models,
        backend=backend,
        algorithm=algorithm,
        trackers=tuple(each for each in trackers if each),
    )


def _validation(table: BenchmarkTable, trained: tuple[BenchmarkTable, ...]) -> BenchmarkTable:
    """A `[validation]` that names no benchmark means other tasks of the one trained on."""
    if table.use is not None or table.file is not None or not trained:
        return table
    options = {**trained[0].options, **table.options}
    return attrs.evolve(table, use=trained[0].use, options=options)


def _backend(config: RunConfig, policy: Wire | Local | None) -> PluginTable | None:
    """The backend that is asked for; an evaluation of local weights needs one too.

    One that is asked for in vain stays out of the way of the rule that says so.
    """
    if isinstance(policy, Wire) and config.run.kind == "eval":
        return None
    if config.backend is None and isinstance(policy, Local):
        return PluginTable("local")
    return config.backend


def _models(
    config: RunConfig, chooser: Chooser, environ: Mapping[str, str] | None
) -> dict[str, Wire | Local]:
    tables = {"policy": ModelTable(), **config.models}
    found: dict[str, Wire | Local] = {}
    for role, table in tables.items():
        path = ("models", role)
        name = table.name
        if name is None and role == "policy" and _takes_default(config):
            name = default_model()
        origin = config.origins.of((*path, "name")) if table.name else None
        try:
            if name is None:
                remedy = _how_to_name(config.run.kind, role)
                chooser.problems.append(problem(path, "no model is named", None, remedy))
                continue
            made = resolve_model(name, base_url=table.base_url, api_key_env=table.api_key_env)
            called = config.run.replay is None and (config.run.kind == "eval" or role != "policy")
            if isinstance(made, Wire) and called:
                made.check_key(environ)
            found[role] = made
        except ConfigError as error:
            chooser.problems.append(problem(path, error.message, origin, error.remedy))
    return found


def _takes_default(config: RunConfig) -> bool:
    """Whether the user's default model is meant: not on a server that was named for this run."""
    return config.run.kind == "eval" and config.policy.base_url is None


def _how_to_name(kind: str, role: str) -> str:
    if role != "policy":
        return f"models.{role}.name=provider/model"
    if kind == "train":
        return "--model smollm2-135m, a hub name (org/name) or a directory"
    return "--model provider/model; `rllm model use NAME` sets the default of evaluations"


def _construct(run: Resolved) -> None:
    """Make one of each part whose making is cheap, so that its own checks speak now."""
    problems: list[ConfigError] = []
    parts = (
        *run.benchmarks,
        run.validation,
        run.harness,
        run.backend,
        run.algorithm,
        *run.trackers,
    )
    for part in parts:
        try:
            if part is not None:
                part.make()
        except ConfigError as error:
            problems.append(_placed(error, run.config))
    raise_all(problems)


def _placed(error: ConfigError, config: RunConfig) -> ConfigError:
    """A plugin's own error about one of its settings, with where that was set."""
    path, colon, what = error.message.partition(": ")
    origin = config.origin(path) if colon and re.fullmatch(r"[\w-]+(\.[\w-]+)+", path) else None
    return problem(path.split("."), what, origin, error.remedy) if origin else error


def _complete(run: Resolved) -> RunConfig:
    """The configuration with everything filled in that was decided here."""
    config = run.config
    names = {role: table for role, table in config.models.items() if table.name is not None}
    policy = config.models.get("policy", ModelTable())
    policy = attrs.evolve(
        policy,
        name=policy.name or default_model(),
        max_tokens=policy.max_tokens or _answer_length(run),
    )
    return attrs.evolve(
        config,
        benchmark=tuple(_tasks(each) for each in run.benchmarks),
        validation=None if run.validation is None else _tasks(run.validation),
        harness=PluginTable(run.harness.table.use, run.harness.resolved_options()),
        sandbox=_filled(run.sandbox),
        models={**names, "policy": policy},
        backend=_filled(run.backend),
        algorithm=_filled(run.algorithm),
        trackers=tuple(table for each in run.trackers if (table := _filled(each))),
    )


def _answer_length(run: Resolved) -> int | None:
    """Where to stop a model of ours that rambles: as long as the longest answer asked for."""
    lengths = [benchmark.cls.max_tokens for benchmark in run.benchmarks]
    known = [length for length in lengths if length is not None]
    return max(known) if isinstance(run.policy, Local) and len(known) == len(lengths) else None


def _filled(chosen: Chosen | None) -> PluginTable | None:
    if chosen is None:
        return None
    return PluginTable(chosen.table.use, chosen.resolved_options())


def _tasks(chosen: Chosen) -> Any:
    options = chosen.resolved_options()
    options.pop("file", None)  # the table's own key
    return attrs.evolve(chosen.table, options=options)
