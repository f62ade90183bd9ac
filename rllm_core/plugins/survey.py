"""The state of every installed plugin: `rllm plugins`.

Without `load` nothing is imported: metadata says who is there, what it requires and whether two
offer one name. With `load` every plugin is imported in its boundary, one after another, and its
hook, options and capabilities are looked at; the time that took is kept.
"""

import importlib.util
import sys
import time
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import Entry
from rllm_core.plugins.requirements import Installed, install_command

if TYPE_CHECKING:
    from rllm_core.plugins import Plugins

__all__ = ["FINE", "STATES", "Status", "survey"]

STATES = ("ok", "broken", "needs", "disabled", "ambiguous")
FINE = ("ok", "disabled")
"""States that need no mending."""


@frozen
class Status:
    """One line of `rllm plugins`.

    `state` is one of `STATES`, `reason` says more where it is not ok, `mend` is the command that
    installs what it needs. `import_ms` is the time that importing it took, where it was; a library
    that several import counts for the first of them.
    """

    kind: str
    name: str
    package: str
    version: str
    state: str = "ok"
    reason: str = ""
    mend: str = ""
    import_ms: float | None = None


def survey(plugins: "Plugins", kind: str | None = None, *, check: bool = False) -> list[Status]:
    """The state of every installed plugin, and of distributions that cannot be read.

    `check` imports them all, besides.
    """
    installed = Installed.on(sys.path)
    found = []
    for entry in plugins.entries(kind):
        status = _listed(plugins, entry, installed)
        loads = check and status.state not in ("broken", "disabled")
        found.append(_loaded(plugins, entry, status) if loads else status)
    if kind is None:
        found += [Status("?", "?", b.place, "?", "broken", b.reason) for b in plugins.index.bad]
    return found


def _listed(plugins: "Plugins", entry: Entry, installed: Installed) -> Status:
    """What metadata alone tells."""
    status = Status(entry.kind, entry.name, entry.package, entry.version)
    disabled = plugins.why_disabled(entry)
    if disabled is not None:
        return evolve(status, state="disabled", reason=disabled)
    if not _has_module(entry):
        reason = f"its module {entry.value} is not there: pip install -U {entry.package}"
        return evolve(status, state="broken", reason=reason)
    try:
        unmet = installed.unmet(entry.info)
    except ValueError as error:
        return evolve(status, state="broken", reason=f"its metadata: {error}")
    rivals = plugins.rivals(entry)
    if rivals:
        others = " and ".join(e.package for e in rivals)
        reason = f"{others} offers it too; say {entry.package}/{entry.name}"
        return evolve(status, state="ambiguous", reason=reason)
    if unmet:
        mend = install_command(requirement for requirement, _ in unmet)
        what = "; ".join(wrong for _, wrong in unmet)
        return evolve(status, state="needs", reason=f"{what}: {mend}", mend=mend)
    return status


def _loaded(plugins: "Plugins", entry: Entry, status: Status) -> Status:
    """What importing it tells, besides."""
    from rllm_core.plugins.checking import faults

    started = time.perf_counter()
    try:
        cls = plugins.load(entry.kind, f"{entry.package}/{entry.name}")
    except ConfigError as error:
        reason = f"{error.message}   {error.remedy or ''}".strip()
        if status.state == "needs":  # most likely why; the command is what mends it
            reason = f"{status.reason}   ({error.message})"
            return evolve(status, reason=reason, import_ms=_since(started))
        return evolve(status, state="broken", reason=reason, import_ms=_since(started))
    remark = status.reason or plugins.remarks.get(entry, "")
    status = evolve(status, reason=remark, import_ms=_since(started))
    found = list(faults(entry.kind, cls))
    return evolve(status, state="broken", reason="; ".join(found)) if found else status


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 1)


def _has_module(entry: Entry) -> bool:
    """Whether the entry's package can be found at all; nothing of it is imported."""
    top = entry.value.partition(":")[0].partition(".")[0].strip()
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False
