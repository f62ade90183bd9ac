"""A plugin's options: from a table of plain data to an instance of its attrs `Options`.

Unknown keys are refused. Each problem names the dotted path, where the setting came from,
what was expected and the nearest valid key; all of them are reported together.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs
from attrs import frozen

from rllm_core.errors import ConfigError
from rllm_core.plugins.origin import Origin, Origins, dotted
from rllm_core.plugins.shapes import Mismatch, converter, describe

__all__ = [
    "Problems",
    "Where",
    "build",
    "build_options",
    "check_options_class",
    "nearest",
    "problem",
    "raise_all",
]

T = TypeVar("T")


class Problems(ConfigError):  # noqa: N818 - what it holds
    """Several configuration errors found together; `problems` holds each one."""

    def __init__(self, problems: Iterable[ConfigError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(each) for each in self.problems))


def raise_all(problems: Iterable[ConfigError]) -> None:
    """Raise what was found: nothing, the one problem, or all of them as `Problems`."""
    flat: list[ConfigError] = []
    for each in problems:
        found = each.problems if isinstance(each, Problems) else (each,)
        flat += [one for one in found if str(one) not in map(str, flat)]
    if len(flat) == 1:
        raise flat[0]
    if flat:
        raise Problems(flat)


@frozen
class Where:
    """What a table is, for messages: its path, whose options it holds, how to list them.

    `place` is its path among the origins, where that is another one (`benchmark.0`).
    """

    path: tuple[str, ...] = ()
    owner: str = ""
    listing: str = ""
    origins: Origins = attrs.Factory(Origins)
    noun: str = "option"
    place: tuple[str, ...] | None = None

    def at(self, *path: str) -> Origin | None:
        """The origin of a setting below this table."""
        return self.origins.of((*self.root, *path))

    @property
    def root(self) -> tuple[str, ...]:
        """The table's path among the origins."""
        return self.path if self.place is None else self.place


def problem(
    path: Iterable[str], what: str, origin: Origin | None = None, remedy: str | None = None
) -> ConfigError:
    """`path: what (origin)`, the form of every configuration error."""
    place = f" ({origin})" if origin else ""
    return ConfigError(f"{dotted(tuple(path))}: {what}{place}", remedy=remedy)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A question that offers the closest known name, or None where nothing is close."""
    by_form = {name.lower().replace("-", "_"): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), by_form, n=1, cutoff=0.6)
    return f"did you mean '{by_form[close[0]]}'?" if close else None


def build_options(plugin: Any, table: Mapping[str, Any], where: Where | None = None) -> Any:
    """An instance of `plugin.Options` from a table; ConfigError (or `Problems`) says why not."""
    return build(plugin.Options, table, where or Where(owner=getattr(plugin, "__name__", "")))


def build(cls: type[T], table: Mapping[str, Any], where: Where) -> T:
    """An instance of an attrs class from a table."""
    import cattrs

    table = _as_typed(cls, table, where)
    try:
        return converter().structure(table, cls)
    except (cattrs.BaseValidationError, Mismatch) as error:
        raise_all(_explain(error, cls, where, ()))
        raise AssertionError from error


def check_options_class(cls: Any) -> None:
    """Raise TypeError where a class is no usable `Options`: not attrs, or types that fail."""
    if not (isinstance(cls, type) and attrs.has(cls)):
        raise TypeError("its Options is not an attrs class (decorate it with @attrs.frozen)")
    attrs.resolve_types(cls)


def _as_typed(cls: Any, table: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """Values that were typed as text stand as that text where a field wants text."""
    attrs.resolve_types(cls)
    wanted = {a.alias: a.type for a in attrs.fields(cls)}
    result = dict(table)
    for key, value in table.items():
        origin = where.origins.places.get((*where.root, key))
        if origin and origin.given is not None and not isinstance(value, str):
            kind = wanted.get(key)
            if kind is str or kind == (str | None):
                result[key] = origin.given
    return result


def _explain(
    error: Exception, cls: Any, where: Where, path: tuple[str, ...]
) -> Iterator[ConfigError]:
    from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

    if isinstance(error, ClassValidationError):
        named, rest = error.group_exceptions()
        for inner, note in named:
            yield from _explain(inner, note.type, where, (*path, note.name))
        for inner in rest:
            yield from _explain(inner, error.cl, where, path)
    elif isinstance(error, IterableValidationError):
        for inner, item in error.group_exceptions()[0]:
            yield from _explain(inner, item.type, where, (*path, str(item.index)))
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield _unknown_key(key, error.cl, where, path)
    elif isinstance(error, KeyError):
        yield _bad(path, f"is missing; expected {describe(cls)}", where)
    elif isinstance(error, Mismatch):
        yield _bad(path, str(error), where)
    else:
        yield from _refused(error, where, path)


def _bad(path: tuple[str, ...], what: str, where: Where) -> ConfigError:
    return problem((*where.path, *path), what, where.at(*path), _listing(where))


def _refused(error: Exception, where: Where, path: tuple[str, ...]) -> Iterator[ConfigError]:
    """What a validator or `__attrs_post_init__` said; attrs puts the field's name first."""
    text = str(error.args[0]) if error.args else type(error).__name__
    named = re.match(r"'(\w+)' (.*)", text, re.DOTALL)
    if named:
        yield _bad((*path, named[1]), named[2], where)
    else:
        yield _bad(path, text, where)


def _unknown_key(key: str, cls: Any, where: Where, path: tuple[str, ...]) -> ConfigError:
    known = [a.alias for a in attrs.fields(cls) if a.init]
    of = f" of {where.owner}" if where.owner and not path else ""
    hint = nearest(key, known)
    remedy = "   ".join(part for part in (hint, _listing(where)) if part)
    full = (*where.path, *path, key)
    return problem(full, f"unknown {where.noun}{of}", where.at(*path, key), remedy or None)


def _listing(where: Where) -> str | None:
    return f"`{where.listing}` lists its {where.noun}s" if where.listing else None
