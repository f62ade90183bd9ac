"""`module:object` references to a user's own code: `--harness my_agent:solver`.

The working directory is looked in first, as `python -m` does: the user named the module.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from rllm_core.errors import ConfigError

__all__ = ["is_reference", "load_reference"]


def is_reference(name: str) -> bool:
    """Whether a name is `module:object` rather than the name of a plugin."""
    return ":" in name


def load_reference(reference: str, what: str = "object") -> Any:
    """The object behind `module:object` (or `path/to/file.py:object`)."""
    module_name, _, attribute = reference.rpartition(":")
    module = _module(module_name, reference, what)
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(module) if not n.startswith("_")]
            raise ConfigError(
                f"{what} '{reference}': {module_name} has no '{attribute}'",
                remedy=_hint(part, names),
            )
        found = getattr(found, part)
    return found


def _hint(name: str, names: list[str]) -> str:
    from rllm_core.plugins.options import nearest

    return nearest(name, names) or f"it has: {', '.join(names[:12]) or 'nothing'}"


def _module(name: str, reference: str, what: str) -> Any:
    """Import a module; its folder stays on `sys.path`, for what it imports later."""
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise ConfigError(f"{what} '{reference}': there is no file {path.absolute()}")
        folder, name = str(path.absolute().parent), path.stem
    else:
        folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.split(".")[0]
        reason = f"there is no module '{name}'" if missing else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{what} '{reference}' cannot be imported: {reason}",
            remedy=f"looked in {folder} and the installed packages; the form is module:object",
        ) from error
