"""The exact plugins of a run: `plugins.json` in its directory.

A version says little of code that is being worked on, and an editable install's RECORD nothing
at all. So the source files themselves are hashed: of each package that a run used, the files of
the import package that holds the plugin; of the core, all of `rllm_core`.
"""

import hashlib
import importlib.util
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rllm_core import __version__
from rllm_core.plugins.index import Entry, normalize

__all__ = ["RECORD", "changes", "plugin_record", "read_record", "write_record"]

RECORD = "plugins.json"
"""The file's name in a run's directory."""

CORE_FILES = Path(__file__).parents[1]
"""The folder of `rllm_core`."""


def plugin_record(entries: Iterable[Entry]) -> dict[str, Any]:
    """What was used, as JSON data: the interpreter, the core, and each plugin's package."""
    used = list(entries)
    core = {
        "version": __version__,
        "sha256": digest(CORE_FILES),
    }
    packages = {"rllm-core": core}
    for entry in used:
        if normalize(entry.package) not in packages:
            packages[normalize(entry.package)] = _package(entry)
    return {
        "python": platform.python_version(),
        "packages": packages,
        "plugins": [
            {
                "kind": entry.kind,
                "name": entry.name,
                "package": normalize(entry.package),
                "module": entry.value,
                "sha256": digest(_place(entry.value.partition(":")[0])),
            }
            for entry in used
        ],
    }


def write_record(directory: Path, record: Mapping[str, Any]) -> None:
    """Write it into a run's directory."""
    (directory / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_record(directory: Path) -> dict[str, Any]:
    """What a run recorded; empty where it recorded nothing."""
    try:
        data: dict[str, Any] = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Each package that differs between two records, in words."""
    old, new = before.get("packages", {}), now["packages"]
    found = []
    for name in sorted(old.keys() & new.keys()):
        if old[name]["version"] != new[name]["version"]:
            found.append(f"{name} {old[name]['version']} is now {new[name]['version']}")
        elif old[name]["sha256"] != new[name]["sha256"]:
            found.append(f"the files of {name} {new[name]['version']} have changed")
    found += [f"{name} was not used before" for name in sorted(new.keys() - old.keys()) if old]
    return found


def digest(place: Path | None) -> str | None:
    """SHA-256 over a file, or over the names and contents of a folder's files, in order."""
    if place is None:
        return None
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    total = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(place).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _package(entry: Entry) -> dict[str, Any]:
    top = _place(entry.value.partition(":")[0].partition(".")[0])
    folder = top.parent if top is not None and top.name == "__init__.py" else top
    found: dict[str, Any] = {"version": entry.version, "sha256": digest(folder)}
    source = _direct_url(entry)
    return found | ({"source": source} if source else {})


def _direct_url(entry: Entry) -> str | None:
    """Where a package came from that came from no index: a folder, a file, a repository."""
    try:
        data = json.loads((entry.info / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(data.get("url") or "") or None


def _place(module: str) -> Path | None:
    """The file of a module; None where it has none (a zip archive, a namespace)."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None
