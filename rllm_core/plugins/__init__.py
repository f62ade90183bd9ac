"""The plugin host: what is installed, loading by name, typed options, event hooks.

pluggy calls the hooks; this room finds and loads the plugins, because pluggy's own loader
imports everything, stops at the first broken plugin and lets equal names replace each other.

    plugins = Plugins.installed()                     # reads metadata, imports nothing
    cls = plugins.load("harness", "react")            # imports one module, in a boundary
    options = build_options(cls, {"max_turns": 5})    # typed, unknown keys refused
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import GROUPS, KINDS, Entry, Index, installed_index, normalize
from rllm_core.plugins.origin import Origin, Origins
from rllm_core.plugins.selection import Rule, Selection

if TYPE_CHECKING:
    from rllm_core.plugins.events import Events

__all__ = [
    "GROUPS",
    "KINDS",
    "Entry",
    "Origin",
    "Origins",
    "Plugins",
    "Rule",
    "Selection",
    "build_options",
]


def build_options(plugin: Any, table: Any, where: Any = None) -> Any:
    """An instance of `plugin.Options`; see `rllm_core.plugins.options.build_options`."""
    from rllm_core.plugins.options import build_options as build

    return build(plugin, table, where)


@define
class Plugins:
    """The index of what is installed, and the classes loaded from it so far.

    `selection` says what may be used; `remarks` holds what there was to say of plugins that were
    loaded all the same (they print).
    """

    index: Index = field(repr=False)
    _loaded: dict[tuple[str, str, str], Any] = field(factory=dict, repr=False)
    selection: Selection = field(factory=Selection)
    remarks: dict[Entry, str] = field(factory=dict, repr=False)

    @classmethod
    def installed(cls) -> "Plugins":
        """Everything on `sys.path` that RLLM_PLUGINS allows; the index is read once a process."""
        return cls(installed_index(), selection=Selection.of_environment())

    def without(self, rules: Iterable[Rule]) -> "Plugins":
        """The same plugins with some disabled; ConfigError for a rule that cannot hold."""
        rules = tuple(rules)
        if not rules:
            return self
        fewer = evolve(self, selection=self.selection.without(rules))
        fewer.selection.check(self.index)
        return fewer

    def names(self, kind: str) -> list[str]:
        """The names of a kind that may be used, sorted."""
        return [name for name in self.index.names(kind) if self._offering(kind, name)]

    def entries(self, kind: str | None = None) -> list[Entry]:
        """Every installed entry (of one kind), by kind and name; disabled ones too."""
        return [entry for entry in self.index.all() if kind in (None, entry.kind)]

    def entry(self, kind: str, name: str) -> Entry:
        """The one entry of this name; `package/name` picks one of several."""
        package, _, bare = name.rpartition("/")
        installed = self.index.entries.get((kind, normalize(bare)), ())
        if package:
            installed = tuple(e for e in installed if normalize(e.package) == normalize(package))
        found = [e for e in installed if self.why_disabled(e) is None]
        if len(found) == 1:
            return found[0]
        if found:
            raise self._ambiguous(kind, bare, found)
        raise self._disabled(installed[0]) if installed else self._unknown(kind, name)

    def rivals(self, entry: Entry) -> list[Entry]:
        """The other entries, not disabled, that offer the same name."""
        return [e for e in self._offering(entry.kind, entry.name) if e is not entry]

    def why_disabled(self, entry: Entry) -> str | None:
        """Who disabled an entry, in words; None where nobody did."""
        return self.selection.why_disabled(entry)

    def _offering(self, kind: str, name: str) -> list[Entry]:
        offered = self.index.entries.get((kind, name), ())
        return [e for e in offered if self.why_disabled(e) is None]

    def load(self, kind: str, name: str) -> Any:
        """The class of this name; ConfigError says what is unknown, ambiguous or broken."""
        entry = self.entry(kind, name)
        key = (entry.kind, entry.name, entry.package)
        if key not in self._loaded:
            from rllm_core.plugins.loading import load_entry

            self._loaded[key], printed = load_entry(entry)
            if printed:
                self._remark(entry, f"it prints while it is loaded: {printed[:200]!r}")
        return self._loaded[key]

    def loaded(self) -> list[Entry]:
        """The entries that were loaded so far: what a run used."""
        return [e for e in self.entries() if (e.kind, e.name, e.package) in self._loaded]

    def hooks(self, observers: Sequence[Any]) -> "Events":
        """Who is told of a run's events: an `rllm_core.plugins.events.Events`."""
        from rllm_core.plugins.events import Events

        return Events(observers)

    def _ambiguous(self, kind: str, name: str, found: Sequence[Entry]) -> ConfigError:
        owners = " and ".join(f"{e.package} {e.version}" for e in found)
        picks = " or ".join(f"'{e.package}/{name}'" for e in found)
        return ConfigError(f"{kind} '{name}' is offered by {owners}", remedy=f"say which: {picks}")

    def _remark(self, entry: Entry, what: str) -> None:
        import logging

        self.remarks[entry] = what
        logging.getLogger("rllm.plugins").warning("%s: %s", entry, what)

    def _disabled(self, entry: Entry) -> ConfigError:
        return ConfigError(
            f"{entry.kind} '{entry.name}' is disabled ({self.why_disabled(entry)})",
            remedy="take that back to use it, or name another one",
        )

    def _unknown(self, kind: str, name: str) -> ConfigError:
        from rllm_core.plugins.options import nearest

        known = self.names(kind)
        hint = nearest(name, known)
        install = f"to install it: pip install rllm-{kind}-{normalize(name)}"
        listed = f"installed: {', '.join(known)}" if known else "none is installed"
        remedy = "   ".join(part for part in (hint, listed, install) if part)
        return ConfigError(f"unknown {kind} '{name}'", remedy=remedy)
