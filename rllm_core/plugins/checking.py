"""What loading a plugin does not look at, because no single run needs all of it: `--check`."""

import inspect
from collections.abc import Iterator
from typing import Any

import attrs

from rllm_core.plugins.describe import options_of
from rllm_core.plugins.kinds import has_options, load_base

__all__ = ["faults"]


def faults(kind: str, cls: Any) -> Iterator[str]:
    """Each thing that is wrong with a loaded class, in words."""
    if not has_options(kind):
        return
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        yield f"{cls.__name__} is abstract: it lacks {missing}"
    yield from _capabilities(kind, cls)
    yield from _options(cls)


def _capabilities(kind: str, cls: Any) -> Iterator[str]:
    """They are of the type that the kind's base class declares."""
    wanted = type(getattr(load_base(kind), "capabilities", None))
    found = getattr(cls, "capabilities", None)
    if attrs.has(wanted) and not isinstance(found, wanted):
        yield f"its capabilities are {found!r:.80}, not {wanted.__name__}"


def _options(cls: Any) -> Iterator[str]:
    """Every option says what it is for, and those without a value in a run file make sense."""
    options = list(options_of(cls))
    for option in options:
        if not option.doc:
            yield f"its option '{option.name}' says nothing (metadata={{'doc': …}})"
    if any(option.required for option in options):
        return
    try:
        cls.Options()
    except (ValueError, TypeError) as error:
        yield f"its options refuse their own defaults: {error}"
