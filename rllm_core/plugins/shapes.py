"""Typed values out of plain data (TOML, JSON, Python), strictly: nothing is coerced silently.

cattrs walks the attrs classes; the hooks here say what each leaf accepts and what was
expected where it does not fit. A whole number stands for a number, a list for a tuple or a
set, text for a path or an enum's value; `"3"` is not a number and 1 is not a truth value.
"""

import functools
import types
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Mismatch", "converter", "describe"]


class Mismatch(ValueError):  # noqa: N818 - says what it is
    """A value of another type than the field's."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(f"expected {expected}, not {value!r:.80}")
        self.value = value
        self.expected = expected


_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    type(None): "nothing",
}


def describe(kind: Any) -> str:
    """A type in words: "a whole number", "a list of text", "'a' or 'b'"."""
    if kind in _NAMES:
        return _NAMES[kind]
    if _is_union(kind):
        return " or ".join(describe(a) for a in get_args(kind) if a is not type(None))
    allowed = _choices(kind)
    if allowed:
        return " or ".join(repr(each) for each in allowed)
    if _is_list(kind):
        return f"a list of {_plural(get_args(kind)[0])}" if get_args(kind) else "a list"
    return "a table" if _is_mapping(kind) or attrs.has(kind) else str(kind)


def _choices(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return get_args(kind) if _is_literal(kind) else ()


def _plural(kind: Any) -> str:
    return {int: "whole numbers", float: "numbers"}.get(kind, describe(kind))


_LISTS = (tuple, list, set, frozenset)


@functools.cache
def converter() -> "Converter":
    """The converter behind options and run files."""
    import cattrs

    made = cattrs.Converter(forbid_extra_keys=True)
    for kind, hook in _LEAVES.items():
        made.register_structure_hook(kind, functools.partial(_leaf, hook))
    made.register_structure_hook(Enum, _enum)
    made.register_unstructure_hook(Path, str)
    made.register_structure_hook_func(_is_literal, _literal)
    for predicate, build in (
        (_is_union, _union),
        (_is_list, _list),
        (_is_mapping, _mapping),
        (attrs.has, _table),
    ):
        made.register_structure_hook_factory(predicate, functools.partial(build, made))
    return made


def _leaf(hook: Callable[[Any, Any], Any], value: Any, kind: Any) -> Any:
    """Text or a number; a `StrEnum` is dispatched here too, as a subclass of text."""
    is_enum = isinstance(kind, type) and issubclass(kind, Enum)
    return _enum(value, kind) if is_enum else hook(value, kind)


def _is_literal(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _is_list(kind: Any) -> bool:
    return kind in _LISTS or get_origin(kind) in _LISTS


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _text(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise Mismatch(value, describe(str))


def _truth(value: Any, _: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Mismatch(value, describe(bool))


def _whole(value: Any, _: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Mismatch(value, describe(int))


def _number(value: Any, _: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise Mismatch(value, describe(float))


def _path(value: Any, _: Any) -> Path:
    if isinstance(value, (str, Path)):
        return Path(value)
    raise Mismatch(value, describe(Path))


def _nothing(value: Any, _: Any) -> None:
    if value is not None:
        raise Mismatch(value, describe(type(None)))


_LEAVES: dict[Any, Callable[[Any, Any], Any]] = {
    str: _text,
    bool: _truth,
    int: _whole,
    float: _number,
    Path: _path,
    type(None): _nothing,
}


def _enum(value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise Mismatch(value, describe(kind)) from None


def _literal(value: Any, kind: Any) -> Any:
    for allowed in get_args(kind):
        if value == allowed and type(value) is type(allowed):
            return allowed
    raise Mismatch(value, describe(kind))


def _union(made: "Converter", kind: Any) -> Callable[[Any, Any], Any]:
    """The first member that accepts the value; a table's own errors are worth showing."""
    members = sorted(get_args(kind), key=lambda member: member is float)

    def hook(value: Any, _: Any) -> Any:
        for member in members:
            if attrs.has(member) and isinstance(value, Mapping):
                return made.structure(value, member)
            try:
                return made.structure(value, member)
            except ValueError:
                continue
        raise Mismatch(value, describe(kind))

    return hook


def _list(made: "Converter", kind: Any) -> Callable[[Any, Any], Any]:
    collection = get_origin(kind) or kind
    item = (get_args(kind) or (Any,))[0]

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, _LISTS):
            raise Mismatch(value, describe(kind))
        try:
            return collection(_at(made, item, i, one) for i, one in enumerate(value))
        except Mismatch:
            raise Mismatch(value, describe(kind)) from None

    return hook


def _mapping(made: "Converter", kind: Any) -> Callable[[Any, Any], Any]:
    item = (get_args(kind) or (Any, Any))[1]

    def entry(key: Any, one: Any) -> Any:
        try:
            return _at(made, item, key, one)
        except Mismatch as error:
            raise Mismatch(one, f"{error.expected} under '{key}'") from None

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch(value, describe(kind))
        return {str(key): entry(key, one) for key, one in value.items()}

    return hook


def _at(made: "Converter", kind: Any, place: Any, value: Any) -> Any:
    """One item of a collection; what is wrong inside a table of it keeps its place."""
    from cattrs.errors import ClassValidationError, IterableValidationError, IterableValidationNote

    if kind is Any:
        return value
    try:
        return made.structure(value, kind)
    except ClassValidationError as error:
        error.__notes__ = [IterableValidationNote(f"at {place}", place, kind)]
        raise IterableValidationError(f"at {place}", [error], kind) from None


def _table(made: "Converter", kind: Any) -> Callable[[Any, Any], Any]:
    from cattrs.gen import make_dict_structure_fn

    fill = make_dict_structure_fn(kind, made, _cattrs_forbid_extra_keys=True)

    def hook(value: Any, cls: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise Mismatch(value, describe(kind))
        return fill(dict(value), cls)

    return hook
