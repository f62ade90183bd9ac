"""Which installed plugins may be used: what is disabled, by whom, and the allow-list.

A pattern names a plugin as `kind/name`, by its bare name, or by its package (then everything
that the package offers), or as `package/name`. Three things make rules:

    rllm -p no:NAME …                                   typed: must match something installed
    [plugins] disable = ["NAME"]                        in a run file, or in RLLM_HOME/config.toml
    RLLM_PLUGINS=NAME,NAME                              allow-list: everything else is disabled

What belongs to the core itself (react, grpo) is what a run falls back on, and cannot be
disabled. A disabled plugin is still listed; it is as if it were absent to everything else, so
disabling one of two rivals also settles whose a name is.
"""

import os
from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import Entry, Index, normalize

__all__ = ["ALLOW_VARIABLE", "CORE", "Rule", "Selection"]

ALLOW_VARIABLE = "RLLM_PLUGINS"
"""The environment variable that holds the allow-list; set and empty, it allows the core alone."""

CORE = "rllm-core"
"""The distribution whose own plugins are essential."""


@frozen
class Rule:
    """One pattern and who wrote it (`-p no:codex`, `run.toml:3`).

    A rule that was `typed` for this very command must match something; the others are standing
    preferences, which hold on machines that lack the plugin too.
    """

    pattern: str
    origin: str
    typed: bool = False

    def matches(self, entry: Entry) -> bool:
        """Whether the pattern names this entry."""
        wanted = self.pattern.strip().lower().replace("_", "-")
        package = normalize(entry.package)
        forms = (entry.name, package, f"{entry.kind}/{entry.name}", f"{package}/{entry.name}")
        return wanted in forms


@frozen
class Selection:
    """The rules in force. Without any, everything installed may be used."""

    disable: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] | None = None

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> "Selection":
        """The allow-list of RLLM_PLUGINS, where it is set."""
        text = (os.environ if environ is None else environ).get(ALLOW_VARIABLE)
        if text is None:
            return cls()
        names = filter(None, map(str.strip, text.split(",")))
        return cls(allow=tuple(Rule(name, ALLOW_VARIABLE) for name in names))

    def without(self, rules: Iterable[Rule]) -> "Selection":
        """The same selection with more disabled."""
        return evolve(self, disable=(*self.disable, *rules))

    def why_disabled(self, entry: Entry) -> str | None:
        """Who disabled an entry, in words; None where nobody did."""
        if not (self.disable or self.allow is not None) or _is_core(entry):
            return None
        for rule in self.disable:
            if rule.matches(entry):
                return rule.origin
        if self.allow is not None and not any(rule.matches(entry) for rule in self.allow):
            return f"{ALLOW_VARIABLE} does not list it"
        return None

    def check(self, index: Index) -> None:
        """ConfigError for a rule against the core, and for a typed one that names nothing."""
        for rule in self.disable:
            matched = [entry for entry in index.all() if rule.matches(entry)]
            core = next((entry for entry in matched if _is_core(entry)), None)
            if core is not None:
                raise _essential(rule, core, matched)
            if rule.typed and not matched:
                raise _unmatched(rule, index)

    def unmatched(self, index: Index) -> list[Rule]:
        """The rules that name nothing installed."""
        entries = index.all()
        rules = (*self.disable, *(self.allow or ()))
        return [rule for rule in rules if not any(map(rule.matches, entries))]


def _is_core(entry: Entry) -> bool:
    return normalize(entry.package) == CORE


def _essential(rule: Rule, core: Entry, matched: list[Entry]) -> ConfigError:
    others = [entry for entry in matched if not _is_core(entry)]
    remedy = f"say which other one: {others[0].package}/{others[0].name}" if others else None
    return ConfigError(
        f"{rule.origin}: {core.kind} '{core.name}' is part of {CORE} and cannot be disabled",
        remedy=remedy or "leave it out; a run that names another one does not use it",
    )


def _unmatched(rule: Rule, index: Index) -> ConfigError:
    from rllm_core.plugins.options import nearest

    entries = index.all()
    names = {form for e in entries for form in (e.name, f"{e.kind}/{e.name}", e.package)}
    hint = nearest(rule.pattern, sorted(names))
    listing = "`rllm plugins` lists what is installed"
    return ConfigError(
        f"{rule.origin}: no plugin or package '{rule.pattern}' is installed",
        remedy="   ".join(filter(None, (hint, listing))),
    )
