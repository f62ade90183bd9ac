"""A user's own class in the place of an installed plugin: `use = "path/to/file.py:Class"`.

Only what a run names is imported; files that happen to lie in the working directory never are.
"""

from typing import Any

from rllm_core.errors import ConfigError
from rllm_core.plugins.kinds import load_base
from rllm_core.plugins.options import check_options_class
from rllm_core.references import resolve_object

__all__ = ["own_class"]


def own_class(kind: str, reference: str) -> Any:
    """The class that a reference names; ConfigError where it is no plugin of this kind."""
    found = resolve_object(reference)
    base = load_base(kind)
    if not isinstance(found, type) or (base is not None and not issubclass(found, base)):
        wanted = f"{base.__module__}.{base.__name__}" if base else "a class"
        raise ConfigError(
            f"{reference} is no {kind}: it is {found!r:.80}",
            remedy=f"name a class that extends {wanted}" if base else "name a class",
        )
    try:
        check_options_class(getattr(found, "Options", None))
    except TypeError as error:
        raise ConfigError(f"{kind} {reference}: {error}") from error
    return found
