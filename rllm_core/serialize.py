"""JSON for the types of `rllm_core.types`: lossless, and readable by other programs.

`Graded` values are a number, `{"missing": reason}` or `{"failed": error}`. Token arrays are
lists. Fields that stand at their default are written too: a reader needs no defaults.
"""

import functools
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rllm_core.types import Failed, Graded, Message, Missing, as_graded

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["from_json", "to_json"]

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A value of `rllm_core.types` as plain JSON data."""
    return _converter().unstructure(value)


def from_json(cls: type[T], data: Any) -> T:
    """The inverse of `to_json`; ValueError-like cattrs errors name what does not fit."""
    return _converter().structure(data, cls)


@functools.cache
def _converter() -> "Converter":
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook(array, list)
    converter.register_structure_hook_func(
        lambda t: getattr(t, "__origin__", t) is array, lambda value, _: value
    )
    converter.register_unstructure_hook(Missing, lambda m: {"missing": m.reason})
    converter.register_unstructure_hook(Failed, lambda f: {"failed": f.error})
    for optional in (Graded, Graded | None):
        converter.register_structure_hook(optional, _graded)
        converter.register_unstructure_hook(optional, converter.unstructure)
    converter.register_structure_hook_func(lambda t: t == Message, lambda value, _: value)
    converter.register_structure_hook_func(
        lambda t: getattr(t, "__origin__", None) is Mapping and t.__args__[1] is Any,
        lambda value, _: value,
    )
    converter.register_structure_hook(str | tuple[Message, ...], _prompt)
    return converter


def _graded(value: Any, _: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        if "missing" in value:
            return Missing(value["missing"])
        return Failed(value["failed"])
    return as_graded(value)


def _prompt(value: Any, _: Any) -> Any:
    return value if isinstance(value, str) else tuple(value)
