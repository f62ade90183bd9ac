"""The plugin host: what is installed, loading by name, typed options, event hooks.

pluggy calls the hooks; this room finds and loads the plugins, because pluggy's own loader
imports everything, stops at the first broken plugin and lets equal names replace each other.

    plugins = Plugins.installed()                     # reads metadata, imports nothing
    cls = plugins.load("harness", "react")            # imports one module, in a boundary
    options = build_options(cls, {"max_turns": 5})    # typed, unknown keys refused
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import GROUPS, KINDS, Entry, Index, installed_index, normalize
from rllm_core.plugins.origin import Origin, Origins

if TYPE_CHECKING:
    from rllm_core.plugins.events import Events

__all__ = [
    "GROUPS",
    "KINDS",
    "Entry",
    "Origin",
    "Origins",
    "Plugins",
    "build_options",
]


def build_options(plugin: Any, table: Any, where: Any = None) -> Any:
    """An instance of `plugin.Options`; see `rllm_core.plugins.options.build_options`."""
    from rllm_core.plugins.options import build_options as build

    return build(plugin, table, where)


@define
class Plugins:
    """The index of what is installed, and the classes loaded from it so far."""

    index: Index = field(repr=False)
    _loaded: dict[tuple[str, str, str], Any] = field(factory=dict, repr=False)

    @classmethod
    def installed(cls) -> "Plugins":
        """Everything on `sys.path`; the index is read once a process."""
        return cls(installed_index())

    def names(self, kind: str) -> list[str]:
        """The installed names of a kind, sorted."""
        return self.index.names(kind)

    def entries(self, kind: str | None = None) -> list[Entry]:
        """Every installed entry (of one kind), by kind and name."""
        return [entry for entry in self.index.all() if kind in (None, entry.kind)]

    def entry(self, kind: str, name: str) -> Entry:
        """The one entry of this name; `package/name` picks one of several."""
        package, _, bare = name.rpartition("/")
        found = self.index.entries.get((kind, normalize(bare)), ())
        if package:
            found = tuple(e for e in found if normalize(e.package) == normalize(package))
        if len(found) == 1:
            return found[0]
        raise self._ambiguous(kind, bare, found) if found else self._unknown(kind, name)

    def load(self, kind: str, name: str) -> Any:
        """The class of this name; ConfigError says what is unknown, ambiguous or broken."""
        entry = self.entry(kind, name)
        key = (entry.kind, entry.name, entry.package)
        if key not in self._loaded:
            from rllm_core.plugins.loading import load_entry

            self._loaded[key] = load_entry(entry)
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

    def _unknown(self, kind: str, name: str) -> ConfigError:
        from rllm_core.plugins.options import nearest

        known = self.names(kind)
        hint = nearest(name, known)
        install = f"to install it: pip install rllm-{kind}-{normalize(name)}"
        listed = f"installed: {', '.join(known)}" if known else "none is installed"
        remedy = "   ".join(part for part in (hint, listed, install) if part)
        return ConfigError(f"unknown {kind} '{name}'", remedy=remedy)
