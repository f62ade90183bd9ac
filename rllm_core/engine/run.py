"""A run, opened: its store, its gateway, its model, everything that rollouts need.

`open_run` makes these in order and takes them down in the reverse order, whatever happens; the
store then says how the run ended. What a run does while it is open is `evaluate` or `train`.
"""

import asyncio
import gc
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import define, frozen

from rllm_core.backend import Backend, LoadedModel, ModelSpec
from rllm_core.config import ModelTable, to_toml
from rllm_core.engine.evaluate import Evaluation
from rllm_core.engine.jobs import Sampling
from rllm_core.engine.logs import logging_to
from rllm_core.engine.observer import Observer
from rllm_core.engine.rollout import Rollouts
from rllm_core.errors import BackendError, ConfigError
from rllm_core.gateway import Gateway
from rllm_core.harness import Harness
from rllm_core.plugins.record import changes, plugin_record, read_record, write_record
from rllm_core.providers import Local, Wire
from rllm_core.resolve import Resolved
from rllm_core.store import RunReader, RunStore, find_run, new_run_id, runs_directory
from rllm_core.upstream.cassette import CASSETTE, Player, Recorder, Tape

__all__ = ["Place", "Run", "open_run", "sampling_of"]

START_DEADLINE = 1800.0
"""Seconds that starting a backend and loading its model may take (downloads included)."""


@frozen
class Place:
    """Where a run lies, and whether it goes on there."""

    directory: Path
    resume: bool = False

    @classmethod
    def of(cls, directory: str | None, *, resume: bool = False) -> "Place":
        """The user's directory, or a new one under RLLM_HOME."""
        if directory is not None:
            return cls(Path(directory).expanduser().absolute(), resume)
        return cls(runs_directory() / new_run_id(), resume)


@define
class Run:
    """What an open run is made of."""

    resolved: Resolved
    store: RunStore
    gateway: Gateway
    rollouts: Rollouts
    observer: Observer
    loaded: LoadedModel | None = None

    @property
    def sampling(self) -> Sampling:
        """What the policy's table enforces."""
        return sampling_of(self.resolved.config.policy)

    def evaluation(self) -> Evaluation:
        """The evaluator of this run."""
        settings = self.resolved.config.run
        return Evaluation(
            self.rollouts, self.store, self.observer, settings.concurrency, settings.max_error_share
        )


def sampling_of(table: ModelTable) -> Sampling:
    """The sampling settings of a model's table."""
    return Sampling(table.temperature, table.top_p, table.top_k, table.max_tokens)


@asynccontextmanager
async def open_run(
    resolved: Resolved, harness: Harness, place: Place, observer: Observer
) -> AsyncIterator[Run]:
    """An open run; on leaving it is closed and its status is on disk.

    A new run that turns out to be impossible (a model that is not there) leaves nothing behind.
    """
    async with AsyncExitStack() as stack:
        store = _open_store(resolved, place)
        if not place.resume:
            stack.push(_discard_impossible(store))
        stack.callback(store.close)
        stack.enter_context(logging_to(place.directory / "logs" / "run.log", observer))
        observer.run_started(_facts(resolved, store))
        _record_plugins(resolved, store, observer)
        try:
            yield await _opened(resolved, harness, store, observer, stack)
        except BaseException as error:
            store.set_status(_status(error))
            store.add_event("ended", f"{type(error).__name__}: {error}")
            raise
        await _let_clients_close()
        store.set_status("finished")


def _record_plugins(resolved: Resolved, store: RunStore, observer: Observer) -> None:
    """Keep what exactly is used; a run that goes on with other files than before says so."""
    record, before = plugin_record(resolved.entries), read_record(store.directory)
    if not before:
        write_record(store.directory, record)
        return
    for change in changes(before, record):
        store.add_event("changed_package", change, record)
        observer.note(f"since this run began: {change}")


def _discard_impossible(store: RunStore) -> Callable[..., None]:
    """Remove the directory where a ConfigError came before the first rollout."""

    def leaving(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, ConfigError) and not _has_begun(store.directory):
            shutil.rmtree(store.directory, ignore_errors=True)

    return leaving


def _has_begun(directory: Path) -> bool:
    reader = RunReader(directory)
    try:
        return bool(reader.phases())
    finally:
        reader.close()


async def _opened(
    resolved: Resolved,
    harness: Harness,
    store: RunStore,
    observer: Observer,
    stack: AsyncExitStack,
) -> Run:
    gateway = Gateway(tape=_tape(resolved, store, stack))
    await gateway.start()
    stack.push_async_callback(gateway.close)
    _route_servers(resolved, gateway)
    loaded = await _route_policy(resolved, gateway, stack)
    rollouts = _rollouts(resolved, gateway, harness, loaded)
    return Run(resolved, store, gateway, rollouts, observer, loaded)


def _tape(resolved: Resolved, store: RunStore, stack: AsyncExitStack) -> Tape | None:
    """What the models' answers are recorded on, or played from."""
    settings = resolved.config.run
    if settings.replay is not None:
        tape: Player | Recorder = Player(find_run(settings.replay) / CASSETTE)
    elif settings.record:
        tape = Recorder(store.directory / CASSETTE)
    else:
        return None
    stack.callback(tape.close)
    return tape


async def _let_clients_close() -> None:
    """HTTP clients that user code left open close themselves when they are collected.

    They need a running loop for it: without this, each prints a traceback at exit.
    """
    gc.collect()
    await asyncio.sleep(0.05)


def _status(error: BaseException) -> str:
    interrupted = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))
    return "interrupted" if interrupted else "failed"


def _open_store(resolved: Resolved, place: Place) -> RunStore:
    config = resolved.config
    if place.resume:
        store = RunStore.resume(place.directory)
        store.set_config(to_toml(config))
        store.add_event("resumed", "the run goes on", {"time": time.time()})
        return store
    return RunStore.create(
        place.directory,
        run_id=place.directory.name,
        kind=config.run.kind,
        name=config.run.name,
        config_toml=to_toml(config),
        plugins={f"{e.kind}/{e.name}": f"{e.package} {e.version}" for e in resolved.entries},
    )


def _route_servers(resolved: Resolved, gateway: Gateway) -> None:
    """Point every role that a server plays (a judge, a teacher) at it."""
    for role, model in resolved.models.items():
        if isinstance(model, Wire):
            window = resolved.config.models.get(role, ModelTable()).context_window
            keyless = resolved.config.run.replay is not None
            gateway.route(role, model.upstream(context_window=window, keyless=keyless))


async def _route_policy(
    resolved: Resolved, gateway: Gateway, stack: AsyncExitStack
) -> LoadedModel | None:
    """Load the policy where it is ours; the backend started for it is closed with the run."""
    table, model = resolved.config.policy, resolved.policy
    if isinstance(model, Wire):
        return None
    assert resolved.backend is not None, "local weights need a backend: checked before"
    backend: Backend = resolved.backend.make()
    stack.push_async_callback(backend.close)
    loaded = await _load(backend, model, table)
    gateway.route("policy", await loaded.model.publish(0), renderer=loaded.renderer)
    return loaded


async def _load(backend: Backend, model: Local, table: ModelTable) -> LoadedModel:
    try:
        async with asyncio.timeout(START_DEADLINE):
            await backend.start()
            return await backend.model("policy", ModelSpec(model.source, table.context_window))
    except TimeoutError:
        raise BackendError(
            f"the backend did not load {model.source} within {START_DEADLINE:g} s"
        ) from None


def _rollouts(
    resolved: Resolved, gateway: Gateway, harness: Harness, loaded: LoadedModel | None
) -> Rollouts:
    settings, table = resolved.config.run, resolved.config.policy
    return Rollouts(
        gateway,
        harness,
        seed=settings.seed,
        deadline=settings.deadline,
        retries=settings.retries,
        context_window=loaded.context_window if loaded else table.context_window,
        scoring_roles={
            role: sampling_of(each)
            for role, each in resolved.config.models.items()
            if role != "policy"
        },
    )


def _facts(resolved: Resolved, store: RunStore) -> dict[str, Any]:
    """What a header shows of a run."""
    config, info = resolved.config, store.info
    facts = {
        "id": info.id,
        "name": info.name,
        "kind": info.kind,
        "directory": str(info.directory),
        "benchmark": ", ".join(t.use or "" for t in config.benchmark),
        "model": config.policy.name,
        "harness": config.harness.use,
        "backend": config.backend.use if config.backend else None,
        "algorithm": config.algorithm.use if config.algorithm else None,
        "steps": config.run.steps if info.kind == "train" else None,
    }
    return {key: value for key, value in facts.items() if value is not None}
