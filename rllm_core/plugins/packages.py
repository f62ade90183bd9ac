"""From what a user types to the package that is meant: `harness/codex`, `codex`, a full name.

Only packages that are named as plugins are (`rllm-KIND-NAME`) are ever installed by us. What is
installed already is found by what it offers, whatever its package is called.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import KINDS, Entry, normalize
from rllm_core.plugins.selection import CORE

__all__ = ["installed_package", "package_of", "requirement_of"]

_TYPED = re.compile(r"(?P<name>[A-Za-z0-9][\w./-]*)(?P<rest>(\[[\w,. -]*\])?\s*([<>=!~].*)?)")


def requirement_of(typed: str, links: Iterable[str] = ()) -> str:
    """The requirement to install, `rllm-harness-codex>=0.2`; ConfigError if it is no plugin's.

    A bare name is looked up among the wheels of the folders in `links`.
    """
    match = _TYPED.fullmatch(typed.strip())
    if match is None:
        raise ConfigError(
            f"'{typed}' is no name of a plugin",
            remedy="say kind/name or rllm-KIND-NAME, with a version behind it if it matters",
        )
    return package_of(match["name"], links) + match["rest"].replace(" ", "")


def package_of(name: str, links: Iterable[str] = ()) -> str:
    """The package of `kind/name`, `rllm-KIND-NAME`, rllm-core, or a bare name found in `links`."""
    kind, slash, bare = normalize(name).partition("/")
    if slash:
        if kind not in KINDS or not bare or "/" in bare:
            from rllm_core.plugins.options import nearest

            hint = nearest(kind, KINDS)
            kinds = f"the form is kind/name, with a kind of {', '.join(KINDS)}"
            remedy = "   ".join(filter(None, (hint, kinds)))
            raise ConfigError(f"'{name}' names no plugin", remedy=remedy)
        return f"rllm-{kind}-{bare}"
    if kind == CORE or _is_plugin_package(kind):
        return kind
    found = _in_folders(kind, links)
    if len(found) == 1:
        return found[0]
    raise _which(name, kind, found)


def installed_package(name: str, entries: Iterable[Entry]) -> str:
    """The installed package that `kind/name`, a bare name or a package's name means."""
    wanted = normalize(name)
    owners = {
        entry.package
        for entry in entries
        if wanted in (normalize(entry.package), entry.name, f"{entry.kind}/{entry.name}")
    }
    if len(owners) > 1:
        listed = " or ".join(sorted(owners))
        raise ConfigError(f"'{name}' is offered by several packages", remedy=f"say {listed}")
    if not owners:
        from rllm_core.plugins.options import nearest

        names = {form for e in entries for form in (e.name, f"{e.kind}/{e.name}", e.package)}
        remedy = nearest(name, sorted(names)) or "`rllm plugins` lists what is installed"
        raise ConfigError(f"no plugin '{name}' is installed", remedy=remedy)
    (owner,) = owners
    if normalize(owner) == CORE:
        raise ConfigError(
            f"'{name}' belongs to {CORE}, which `rllm` itself is part of",
            remedy=f"to remove everything: pip uninstall {CORE}",
        )
    return owner


def _is_plugin_package(package: str) -> bool:
    return any(re.fullmatch(rf"rllm-{kind}-[a-z0-9][a-z0-9.-]*", package) for kind in KINDS)


def _in_folders(name: str, links: Iterable[str]) -> list[str]:
    """The plugin packages of this bare name among the wheels in local folders."""
    found = {
        package
        for link in links
        for wheel in Path(link.removeprefix("file://")).glob("rllm_*.whl")
        if _is_plugin_package(package := normalize(wheel.name.partition("-")[0]))
        and package in {f"rllm-{kind}-{name}" for kind in KINDS}
    }
    return sorted(found)


def _which(name: str, bare: str, found: list[str]) -> ConfigError:
    if found:
        return ConfigError(f"'{name}' may be several plugins", remedy=f"say {' or '.join(found)}")
    if bare.startswith("rllm-") or bare == "rllm":
        known = ", ".join(KINDS)
        return ConfigError(
            f"'{name}' is not the name of a plugin's package",
            remedy=f"those are called rllm-KIND-NAME, with a kind of {known}",
        )
    return ConfigError(
        f"which kind of plugin is '{name}'?",
        remedy=f"say {', '.join(f'{kind}/{bare}' for kind in KINDS[:2])}, … "
        "A package of another name is installed with pip; `rllm plugins` finds it all the same",
    )
