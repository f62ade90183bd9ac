"""Layers of settings, merged into one tree of plain data that remembers its origins.

The layers, weakest first: the file, environment variables, the command line, Python values.
They merge key by key; a list replaces a list. A path into `benchmark` or `trackers` without
a number means each of their tables (or makes the first one).
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen

from rllm_core.config.locate import lines_of
from rllm_core.errors import ConfigError
from rllm_core.plugins.origin import Origin, Origins, dotted

__all__ = ["ENVIRONMENT_PREFIX", "Layers", "Override", "parse_override", "parse_value"]

ENVIRONMENT_PREFIX = "RLLM__"
LISTS = ("benchmark", "trackers")
PLUGIN_TABLES = (*LISTS, "validation", "harness", "scorer", "sandbox", "backend", "algorithm")


@frozen
class Override:
    """One setting from the command line: its path, its value, and where it was typed."""

    path: tuple[str, ...]
    value: Any
    origin: Origin


def parse_value(text: str) -> Any:
    """A value typed as text: TOML where it is TOML (`3`, `true`, `[1, 2]`), else the text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def parse_override(text: str) -> Override:
    """`harness.max_turns=30` as an Override."""
    key, separator, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not separator or not all(path) or len(path) < 2:
        raise ConfigError(
            f"'{text}' is no override",
            remedy="the form is section.key=value, e.g. harness.max_turns=30",
        )
    return Override(path, parse_value(value), Origin(f"'{text}' on the command line", value))


@define
class Layers:
    """The tree so far and the origin of every leaf in it."""

    tree: dict[str, Any] = Factory(dict)
    places: dict[tuple[str, ...], Origin] = Factory(dict)

    @property
    def origins(self) -> Origins:
        """The origins, for messages."""
        return Origins(dict(self.places))

    def add_file(self, text: str, name: str) -> None:
        """The settings of a run file; ConfigError where it is no TOML."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{name} is not valid TOML: {error}", remedy="see https://toml.io"
            ) from None
        lines = lines_of(text)
        self._merge(data, {path: Origin(f"{name}:{line}") for path, line in lines.items()}, name)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """`RLLM__HARNESS__MAX_TURNS=30` sets harness.max_turns."""
        for variable in sorted(environ):
            if variable.startswith(ENVIRONMENT_PREFIX):
                path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
                if len(path) < 2 or not all(path):
                    raise ConfigError(
                        f"{variable}: not a setting",
                        remedy="the form is RLLM__SECTION__KEY, e.g. RLLM__HARNESS__MAX_TURNS",
                    )
                text = environ[variable]
                self.set(path, parse_value(text), Origin(variable, text))

    def add_overrides(self, overrides: Sequence[Override]) -> None:
        """Settings from the command line; a flag and an override must not disagree."""
        typed: dict[tuple[str, ...], Override] = {}
        for each in overrides:
            before = typed.get(each.path)
            if before and before.value != each.value and _is_flag(before) != _is_flag(each):
                raise ConfigError(
                    f"{dotted(each.path)} is set twice: {before.origin} and {each.origin}",
                    remedy="leave one of them out",
                )
            typed[each.path] = each
            self.set(each.path, each.value, each.origin)

    def add_values(self, values: Mapping[str, Any]) -> None:
        """Settings given in Python: nested mappings; None means not set."""
        for section, value in values.items():
            if value is not None:
                self.set((section,), value, Origin("given in Python"))

    def set(self, path: Sequence[str], value: Any, origin: Origin) -> None:
        """Set one value, in each table that the path means; a table sets its keys."""
        if value is None:
            return
        whole = len(path) == 1 and not isinstance(value, Mapping)
        for full in [tuple(path)] if whole else self._targets(tuple(path)):
            if isinstance(value, Mapping):
                for key, inner in value.items():
                    if inner is not None:
                        self.set((*full, str(key)), inner, origin)
                if not value:
                    self._put(full, {}, origin)
            else:
                self._put(full, _plain(value), origin)

    def _targets(self, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        section = path[0]
        if section not in LISTS or (len(path) > 1 and path[1].isdigit()):
            return [path]
        tables = self.tree.setdefault(section, [])
        if isinstance(tables, list):
            if not tables:
                tables.append({})
            return [(section, str(i), *path[1:]) for i in range(len(tables))]
        return [path]

    def _put(self, path: tuple[str, ...], value: Any, origin: Origin) -> None:
        if path[0] in LISTS and len(path) == 1:
            value = value if isinstance(value, list) else [value]
        for stale in [key for key in self.places if key[: len(path)] == path]:
            del self.places[stale]
        node: Any = self.tree
        for depth, part in enumerate(path[:-1], 1):
            node = _child(node, part, path[:depth], origin)
        if isinstance(node, list):
            _index(node, path[-1], path, origin)
            node[int(path[-1])] = value
        else:
            node[path[-1]] = value
        self.places[path] = origin

    def _merge(
        self, data: dict[str, Any], places: Mapping[tuple[str, ...], Origin], name: str
    ) -> None:
        for section in LISTS:
            if section in data and not isinstance(data[section], list):
                data[section] = [data[section]]
                places = {_first(path, section): origin for path, origin in places.items()}
        self.tree = data
        self.places = dict(places)
        for section in data:
            self.places.setdefault((section,), Origin(name))


def _is_flag(override: Override) -> bool:
    return override.origin.given is None


def _first(path: tuple[str, ...], section: str) -> tuple[str, ...]:
    return (section, "0", *path[1:]) if path[0] == section else path


def _plain(value: Any) -> Any:
    """Python's tuples, sets and paths in the form that a TOML file would give."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(v) for v in value)
    return str(value) if isinstance(value, Path) else value


def _spelt_out(table: Any, path: tuple[str, ...]) -> Any:
    """`harness = "react"` as the table that it stands for; likewise a model's name."""
    if not isinstance(table, str):
        return table
    if path[0] == "models":
        return {"name": table} if len(path) == 2 else table
    depth = 2 if path[0] in LISTS else 1
    return {"use": table} if path[0] in PLUGIN_TABLES and len(path) == depth else table


def _index(node: list[Any], part: str, path: tuple[str, ...], origin: Origin) -> None:
    if not part.isdigit() or int(part) >= len(node):
        raise ConfigError(f"{dotted(path)}: there is no such table ({origin})")


def _child(node: Any, part: str, path: tuple[str, ...], origin: Origin) -> Any:
    """The table below `node`, made where there is none."""
    key: Any = part
    if isinstance(node, list):
        _index(node, part, path, origin)
        key = int(part)
    else:
        node.setdefault(part, [] if path[0] in LISTS and len(path) == 1 else {})
    child = node[key] = _spelt_out(node[key], path)
    if not isinstance(child, (dict, list)):
        raise ConfigError(f"{dotted(path)}: is no table, but {child!r:.80} ({origin})")
    return child
