"""Objects named by reference: `package.module:name`, `path/to/file.py:name`, or the object itself.

The way in for a user's own code: a rollout function, an evaluator, a harness class or a tool
needs no package and no entry point. A module is looked for in the current directory too.
"""

import difflib
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rllm_core.errors import ConfigError

__all__ = ["is_reference", "positional_arity", "resolve_object"]

FORMS = "write `package.module:name` or `path/to/file.py:name`"


def is_reference(text: str) -> bool:
    """Whether a user's text names an object by reference, rather than a plugin by name."""
    return ":" in text


def resolve_object(reference: "str | Callable[..., Any]") -> Any:
    """The object that a reference names; one that is no text stands for itself.

    Raises ConfigError where the module cannot be found or fails while it is imported, and
    where it has no such attribute (the nearest names are offered).
    """
    if not isinstance(reference, str):
        return reference
    place, colon, path = reference.rpartition(":")
    if not (colon and place and path):
        raise ConfigError(f"{reference!r} does not name an object", remedy=FORMS)
    found: Any = _load_file(place) if place.endswith(".py") else _import_module(place)
    for name in path.split("."):
        if not hasattr(found, name):
            raise _no_attribute(reference, found, name)
        found = getattr(found, name)
    return found


def _import_module(name: str) -> ModuleType:
    """Import a module; the current directory counts, as it does for `python -m`."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _broken(name, error) from error
        raise ConfigError(
            f"there is no module {name!r} in {here} or among the installed packages",
            remedy=f"run from the directory that holds it, or {FORMS}",
        ) from error
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise _broken(name, error) from error


def _load_file(place: str) -> ModuleType:
    """Load a file once; its directory becomes importable, as it does for `python file.py`."""
    file = Path(place).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"there is no file {place} (looked for {file})", remedy=FORMS)
    name = f"rllm_user_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # as above
        del sys.modules[name]
        raise _broken(place, error) from error
    return module


def _broken(place: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{place} failed while it was imported: {type(error).__name__}: {error}",
        remedy=f"`python -c 'import {place}'` shows the traceback"
        if not place.endswith(".py")
        else f"`python {place}` shows the traceback",
    )


def _no_attribute(reference: str, owner: Any, name: str) -> ConfigError:
    public = [n for n in dir(owner) if not n.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3, cutoff=0.5)
    own = [n for n in public if getattr(getattr(owner, n), "__module__", "") == owner.__name__]
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else None
    if hint is None and own:
        hint = f"it defines: {', '.join(own[:8])}"
    where = reference.rpartition(":")[0]
    return ConfigError(f"{where} has no {name!r} (asked for as {reference!r})", remedy=hint)


def positional_arity(function: "Callable[..., Any]") -> tuple[int, int]:
    """How many positional arguments a callable needs and takes: (required, at most).

    Raises TypeError where it has keyword-only arguments without a default, or cannot be read.
    """
    import inspect

    kinds = inspect.Parameter
    required = most = 0
    for parameter in inspect.signature(function).parameters.values():
        free = parameter.default is kinds.empty
        if parameter.kind is kinds.VAR_POSITIONAL:
            most = sys.maxsize
        elif parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            most += 1
            required += free
        elif parameter.kind is kinds.KEYWORD_ONLY and free:
            raise TypeError(f"keyword-only argument {parameter.name!r} has no default")
    return required, most
