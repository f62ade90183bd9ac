"""The index of installed plugins: entry-point metadata only, nothing is imported.

Distributions are read one by one, so that one with broken metadata hides nobody else. A
distribution that is found twice (stale metadata beside an editable install) counts once:
the one that Python would import comes first. Two distributions that offer the same name
both stay in the index, and the name alone becomes ambiguous.
"""

import functools
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["GROUPS", "KINDS", "BadDistribution", "Entry", "Index", "installed_index", "normalize"]

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "harness": "rllm.harnesses",
        "sandbox": "rllm.sandboxes",
        "backend": "rllm.backends",
        "sampler": "rllm.samplers",
        "benchmark": "rllm.benchmarks",
        "algorithm": "rllm.algorithms",
        "tracker": "rllm.trackers",
        "command": "rllm.commands",
    }
)
"""Kind → entry-point group."""

KINDS = tuple(GROUPS)


def normalize(name: str) -> str:
    """A name in the form that is compared: lower case, dashes."""
    return name.strip().lower().replace("_", "-")


@frozen
class Entry:
    """One installed capability. `value` is the module that holds its hook."""

    kind: str
    name: str
    value: str
    distribution: "Distribution" = field(repr=False, eq=False)

    @property
    def package(self) -> str:
        """The distribution's name."""
        return _metadata(self.distribution, "Name") or "(unnamed package)"

    @property
    def version(self) -> str:
        """The distribution's version."""
        return _metadata(self.distribution, "Version") or "?"

    @property
    def summary(self) -> str:
        """The distribution's one-line description."""
        return _metadata(self.distribution, "Summary") or ""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' ({self.package} {self.version})"


def _metadata(distribution: "Distribution", key: str) -> str | None:
    try:
        metadata: Any = distribution.metadata
        value: str | None = metadata.get(key)
    except Exception:  # noqa: BLE001 - boundary: METADATA is whatever somebody wrote
        return None
    return value


@frozen
class BadDistribution:
    """A distribution whose entry points cannot be read, and why."""

    place: str
    reason: str


@frozen
class Index:
    """Everything installed: (kind, name) → the entries that offer it."""

    entries: Mapping[tuple[str, str], tuple[Entry, ...]]
    bad: tuple[BadDistribution, ...] = ()

    @classmethod
    def scan(cls, path: Iterable[str] | None = None) -> "Index":
        """Read the metadata of every distribution on `path` (default: `sys.path`)."""
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        context = DistributionFinder.Context(path=list(sys.path if path is None else path))
        entries: dict[tuple[str, str], tuple[Entry, ...]] = {}
        bad: list[BadDistribution] = []
        seen: set[str] = set()
        for distribution in MetadataPathFinder.find_distributions(context):
            name = _identity(distribution)
            if name in seen:
                continue
            seen.add(name)
            try:
                found = list(_entries(distribution))
            except Exception as error:  # noqa: BLE001 - boundary: one bad file hides nobody else
                bad.append(BadDistribution(name, f"its entry points cannot be read: {error}"))
                continue
            for entry in found:
                key = (entry.kind, entry.name)
                entries[key] = (*entries.get(key, ()), entry)
        return cls(entries, tuple(bad))

    def names(self, kind: str) -> list[str]:
        """The names of a kind, sorted."""
        return sorted(name for each, name in self.entries if each == kind)

    def all(self) -> list[Entry]:
        """Every entry, by kind and name."""
        order = sorted(self.entries, key=lambda key: (KINDS.index(key[0]), key[1]))
        return [entry for key in order for entry in self.entries[key]]


def _identity(distribution: "Distribution") -> str:
    """The distribution's normalised name, from its folder's name where that is possible."""
    name = getattr(distribution, "_normalized_name", None)  # reads no METADATA
    return normalize(str(name or _metadata(distribution, "Name") or id(distribution)))


def _entries(distribution: "Distribution") -> Iterable[Entry]:
    text = distribution.read_text("entry_points.txt")
    if not text or "rllm." not in text:
        return
    kinds = {group: kind for kind, group in GROUPS.items()}
    for point in distribution.entry_points:
        kind = kinds.get(point.group)
        if kind is not None:
            yield Entry(kind, normalize(point.name), point.value, distribution)


@functools.lru_cache(maxsize=4)
def _scanned(path: tuple[str, ...]) -> Index:
    return Index.scan(path)


def installed_index() -> Index:
    """The index of `sys.path` as it stands now; scanned once a process."""
    return _scanned(tuple(sys.path))
