"""The index of installed plugins: entry-point metadata only, nothing is imported.

The folders `NAME-VERSION.dist-info` (and `.egg-info`) on `sys.path` are read directly, which
costs half of what importlib.metadata does, and one by one, so that broken metadata hides
nobody else. A distribution that is found twice (stale metadata beside an editable install)
counts once: the one that Python would import comes first. Two distributions that offer the same
name both stay in the index, and the name alone becomes ambiguous.
"""

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from attrs import field, frozen

__all__ = [
    "GROUPS",
    "KINDS",
    "BadDistribution",
    "Entry",
    "Index",
    "distributions",
    "installed_index",
    "metadata_of",
    "normalize",
]

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
    """One installed capability.

    `value` is the module that holds its hook, `info` its distribution's metadata folder.
    """

    kind: str
    name: str
    value: str
    info: Path = field(repr=False)

    @property
    def package(self) -> str:
        """The distribution's name."""
        return _header(self.info, "Name") or "(unnamed package)"

    @property
    def version(self) -> str:
        """The distribution's version."""
        return _header(self.info, "Version") or "?"

    @property
    def summary(self) -> str:
        """The distribution's one-line description."""
        return _header(self.info, "Summary") or ""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' ({self.package} {self.version})"


def _header(info: Path, key: str) -> str | None:
    return next(iter(metadata_of(info).get(key, ())), None)


def metadata_of(info: Path) -> Mapping[str, tuple[str, ...]]:
    """The headers of a distribution's METADATA (PKG-INFO in an egg-info), read once."""
    return _headers(str(info))


@functools.lru_cache(maxsize=1024)
def _headers(info: str) -> Mapping[str, tuple[str, ...]]:
    file = Path(info) / ("METADATA" if info.endswith(".dist-info") else "PKG-INFO")
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, colon, value = line.partition(": ")
        if colon and not line.startswith((" ", "\t")):
            found[key] = (*found.get(key, ()), value.strip())
    return found


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
        """Read the entry points of every distribution on `path` (default: `sys.path`)."""
        entries: dict[tuple[str, str], tuple[Entry, ...]] = {}
        bad: list[BadDistribution] = []
        seen: set[str] = set()
        for info in distributions(sys.path if path is None else path):
            name = normalize(info.name.rpartition(".")[0].partition("-")[0])
            if name in seen:
                continue
            seen.add(name)
            try:
                found = list(_entries(info))
            except (OSError, ValueError) as error:
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


def distributions(path: Iterable[str]) -> Iterator[Path]:
    """The metadata folders on a `sys.path`, in the order in which Python would find them."""
    for folder in path:
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208 - half the time of iterdir
        except OSError:  # a zip file, or nothing
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield Path(folder, name)


_KINDS = {group: kind for kind, group in GROUPS.items()}
_MODULE = re.compile(r"\w+(\.\w+)*(:\w+(\.\w+)*)?")


def _entries(info: Path) -> Iterator[Entry]:
    """The entries of one distribution; ValueError for a line that is none."""
    try:
        text = (info / "entry_points.txt").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return
    kind = None
    for line in map(str.strip, text.splitlines() if "rllm." in text else ()):
        if line.startswith("["):
            kind = _KINDS.get(line.strip("[]").strip())
        elif kind is not None and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            module = value.partition("[")[0].strip()
            if not name.strip() or not _MODULE.fullmatch(module):
                raise ValueError(f"{line!r:.80} in entry_points.txt")
            yield Entry(kind, normalize(name), module, info)


@functools.lru_cache(maxsize=4)
def _scanned(path: tuple[str, ...]) -> Index:
    return Index.scan(path)


def installed_index() -> Index:
    """The index of `sys.path` as it stands now; scanned once a process."""
    return _scanned(tuple(sys.path))
