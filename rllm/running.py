"""`rllm.evaluate` and `rllm.train`: the commands, from Python.

Keywords are the flags of `rllm eval` and `rllm train` with underscores; `options` sets anything
else by its dotted path. So these are the same run:

    rllm train arithmetic --model tiny --steps 100 algorithm.ddof=1
    rllm.train(benchmark="arithmetic", model="tiny", steps=100, options={"algorithm.ddof": 1})
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllm_core.errors import ConfigError
from rllm_core.training.execute import Finished

if TYPE_CHECKING:
    from rllm_core.config import Override

__all__ = ["evaluate", "train"]

Agent = str | Callable[..., Any] | None


def evaluate(
    agent: Agent = None,
    benchmark: str | Sequence[str] | None = None,
    *,
    scorer: str | Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    resume: str | None = None,
    quiet: bool = False,
    **flags: Any,
) -> Finished:
    """Evaluate an agent on one benchmark or several, and return the results.

    `agent` is a rollout function, a Harness class, or a harness's name (default: react);
    `scorer` an evaluator function or a scorer's name (default: the benchmark's own). `flags` are
    those of `rllm eval` (model, base_url, max, attempts, temperature, …); `options` maps dotted
    paths to values ({"benchmark.level": "add2"}); `resume` names a run to go on with. Raises
    ConfigError before anything starts where something cannot work.
    """
    overrides = _overrides("eval", benchmark, options, flags)
    _check_order(agent, benchmark, resume)
    return _run(overrides, {"harness": agent, "scorer": scorer}, resume=resume, quiet=quiet)


def train(
    agent: Agent = None,
    benchmark: str | Sequence[str] | None = None,
    *,
    scorer: str | Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    resume: str | None = None,
    quiet: bool = False,
    **flags: Any,
) -> Finished:
    """Train the model that an agent uses, and return the results; arguments as in `evaluate`."""
    overrides = _overrides("train", benchmark, options, flags)
    _check_order(agent, benchmark, resume)
    return _run(overrides, {"harness": agent, "scorer": scorer}, resume=resume, quiet=quiet)


def _run(
    overrides: list["Override"],
    given: Mapping[str, Agent],
    *,
    resume: str | None,
    quiet: bool,
) -> Finished:
    """Check and execute; `given` are names or objects by the table that they stand for."""
    from rllm_core.cli.execute import Request, execute, prepare

    named = {table: each for table, each in given.items() if each is not None}
    overrides += [_override(f"{table}.use", _reference(each)) for table, each in named.items()]
    objects = {table: each for table, each in named.items() if not isinstance(each, str)}
    prepared = prepare(Request(tuple(overrides), resume=resume), objects)
    return _awaited(execute(prepared, quiet=quiet))


def _check_order(agent: Agent, benchmark: Any, resume: str | None) -> None:
    """`rllm.evaluate("gsm8k")` is the likeliest mistake: the agent comes first."""
    if isinstance(agent, str) and benchmark is None and resume is None:
        raise ConfigError(
            f"no benchmark is named: the first argument, {agent!r}, is the agent",
            remedy=f"benchmark={agent!r}, or (agent, benchmark) in this order",
        )


def _overrides(
    kind: str,
    benchmark: str | Sequence[str] | None,
    options: Mapping[str, Any] | None,
    flags: Mapping[str, Any],
) -> list["Override"]:
    values = [("run.kind", kind), *_flags(kind, flags), *(options or {}).items()]
    if benchmark is not None:
        names = [benchmark] if isinstance(benchmark, str) else list(benchmark)
        values.insert(1, ("benchmark", [{"use": name} for name in names]))
    return [_override(path, value) for path, value in values]


def _override(path: str, value: Any) -> "Override":
    from rllm_core.config import Override
    from rllm_core.plugins import Origin

    return Override(tuple(path.split(".")), value, Origin("python"))


def _flags(kind: str, flags: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Keywords as settings; ConfigError for one that the command has no flag for."""
    from rllm_core.cli.options import FLAGS
    from rllm_core.plugins.options import nearest

    paths = {f.name.lstrip("-").replace("-", "_"): f.path for f in FLAGS if kind in f.kinds}
    for name in flags:
        if name not in paths:
            hint = nearest(name, paths) or f"flags: {', '.join(paths)}"
            raise ConfigError(
                f"rllm has no keyword '{name}' here",
                remedy=f"{hint}   options={{'section.key': value}} sets anything",
            )
    return [(paths[name], value) for name, value in flags.items() if value is not None]


def _reference(given: str | Callable[..., Any]) -> str:
    """How the run's stored configuration names a function: module:name, or file.py:name."""
    if isinstance(given, str):
        return given
    module, name = getattr(given, "__module__", "?"), getattr(given, "__qualname__", repr(given))
    if module == "__main__" and (file := getattr(sys.modules["__main__"], "__file__", None)):
        module = str(Path(file).absolute())
    return f"{module}:{name}"


def _awaited(run: Coroutine[Any, Any, Finished]) -> Finished:
    """The result; in a thread of its own where a loop already runs here (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run)
    outcome: list[Finished | BaseException] = []

    def target() -> None:
        try:
            outcome.append(asyncio.run(run))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            outcome.append(error)

    thread = threading.Thread(target=target, name="rllm-run")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
