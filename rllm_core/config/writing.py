"""The resolved run file: a `RunConfig` as TOML that loads to the same `RunConfig`."""

from collections.abc import Mapping
from typing import Any

import attrs

from rllm_core.config.schema import BenchmarkTable, PluginTable, RunConfig

__all__ = ["to_data", "to_toml"]


def to_toml(config: RunConfig) -> str:
    """The configuration as a run file. It holds no secret: keys are named, never read."""
    import tomli_w

    return tomli_w.dumps(to_data(config))


def to_data(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain data, in the shape of the run file."""
    tables: dict[str, Any] = {"run": _run(config)}
    if config.benchmark:
        several = [_tasks(each) for each in config.benchmark]
        tables["benchmark"] = several if len(several) > 1 else several[0]
    if config.validation is not None:
        tables["validation"] = _tasks(config.validation)
    for section in ("harness", "scorer", "sandbox"):
        table = getattr(config, section)
        if table is not None:
            tables[section] = _plugin(table)
    if config.models:
        tables["models"] = {role: _set(table) for role, table in config.models.items()}
    for section in ("backend", "algorithm"):
        table = getattr(config, section)
        if table is not None:
            tables[section] = _plugin(table)
    if config.trackers:
        tables["trackers"] = [_plugin(each) for each in config.trackers]
    if config.plugins.disable:
        tables["plugins"] = _set(config.plugins)
    return tables


def _run(config: RunConfig) -> dict[str, Any]:
    kinds = {a.name: a.metadata["kinds"] for a in attrs.fields(type(config.run))}
    return {key: value for key, value in _set(config.run).items() if config.run.kind in kinds[key]}


def _set(table: Any) -> dict[str, Any]:
    """The fields that hold something; TOML has no null."""
    values = attrs.asdict(table, recurse=False)
    return {key: _plain(value) for key, value in values.items() if value is not None}


def _tasks(table: BenchmarkTable) -> dict[str, Any]:
    values = _set(table)
    options = values.pop("options")
    return {**values, **options}


def _plugin(table: PluginTable) -> dict[str, Any]:
    return {"use": table.use, **_plain(table.options)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
