"""Loading one plugin: import, check, register, ask its hook, check the answer.

Everything that a plugin's code does here happens inside one boundary: whatever it raises,
`sys.exit` included, becomes a `ConfigError` with the package, its version, the reason and
the mend; whatever it prints is kept out of our output.
"""

import contextlib
import importlib
import io
from typing import Any

import pluggy

from rllm_core import hookspecs
from rllm_core.errors import ConfigError
from rllm_core.plugins.index import Entry
from rllm_core.plugins.kinds import has_options, load_base
from rllm_core.plugins.options import check_options_class

__all__ = ["load_entry"]


def load_entry(entry: Entry) -> tuple[Any, str]:
    """The class behind an entry, and what its module printed when it was imported.

    ConfigError says what is broken, whose it is and the mend.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            module = importlib.import_module(entry.value.partition(":")[0])
            _check_api(module)
            found = _ask(entry, module)
            _check_answer(entry, found)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{entry.kind} '{entry.name}' is broken: {_reason(error)}"
            f"   (package {entry.package} {entry.version}, module {entry.value})",
            remedy=_mend(entry, error),
        ) from error
    return found, printed.getvalue()


def _reason(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r}) when it is imported"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _mend(entry: Entry, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if top != entry.value.partition(".")[0]:
            return f"install what it needs: pip install {top.replace('_', '-')}"
    return (
        f"update or remove it: pip install -U {entry.package}   or   "
        f"pip uninstall {entry.package}   (RLLM_DEBUG=1 shows the traceback)"
    )


def _check_api(module: Any) -> None:
    """Refuse a plugin that says it was built for another contract than ours."""
    stated = getattr(module, "RLLM_API", None)
    if stated is None:
        return
    parts = stated.split(".") if isinstance(stated, str) else stated
    major, minor = (int(part) for part in tuple(parts)[:2])
    ours = hookspecs.API_VERSION
    if major != ours[0] or minor > ours[1]:
        raise RuntimeError(
            f"it was built for plugin API {major}.{minor}, this rllm-core has {ours[0]}.{ours[1]}"
            " (pip install -U rllm-core)"
        )


def _ask(entry: Entry, module: Any) -> Any:
    """Register the module alone and call the hook of its kind."""
    manager = pluggy.PluginManager("rllm")
    manager.add_hookspecs(hookspecs)
    manager.register(module, name=f"{entry.kind}/{entry.name}")
    manager.check_pending()
    hook = getattr(manager.hook, f"rllm_{entry.kind}")
    if not hook.get_hookimpls():
        raise TypeError(f"its module has no @hookimpl named rllm_{entry.kind}")
    return hook(name=entry.name)


def _check_answer(entry: Entry, found: Any) -> None:
    hook = f"rllm_{entry.kind}"
    if found is None:
        raise TypeError(f"its hook {hook} returned None for the name '{entry.name}'")
    base = load_base(entry.kind)
    if not has_options(entry.kind):
        if base is not None and not isinstance(found, base):
            raise TypeError(f"its hook {hook} returned {found!r:.80}, not a {base.__name__}")
        return
    if not isinstance(found, type):
        raise TypeError(f"its hook {hook} returned {found!r:.80}, not a class")
    if base is not None and not issubclass(found, base):
        raise TypeError(f"{found.__name__} does not extend {base.__module__}.{base.__name__}")
    check_options_class(getattr(found, "Options", None))
