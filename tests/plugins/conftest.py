"""Installed packages for tests: a module and a dist-info folder, made in a temporary directory."""

import sys
import textwrap
from pathlib import Path

import pytest

GOOD = """
from attrs import field, frozen
from rllm_core import hookimpl
from rllm_core.harness import Harness, HarnessCapabilities

class Good(Harness):
    "A harness for tests."
    capabilities = HarnessCapabilities(tools=True)

    @frozen
    class Options:
        turns: int = field(default=3, metadata={"doc": "how many turns"})

@hookimpl
def rllm_harness():
    return Good
"""


class Site:
    """A directory on `sys.path` that packages are put into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.modules: list[str] = []

    def add(
        self,
        package: str,
        body: str = GOOD,
        *,
        name: str = "good",
        group: str = "rllm.harnesses",
        version: str = "1.0",
        metadata: str | None = None,
        points: str | None = None,
        at: str = "",
    ) -> str:
        """Write one package; returns its module's name."""
        module = package.replace("-", "_")
        self.modules.append(module)
        folder = self.path / at
        folder.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text(textwrap.dedent(body))
        info = folder / f"{module}-{version}.dist-info"
        info.mkdir()
        if metadata is None:
            metadata = (
                f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nSummary: One.\n"
            )
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(points or f"[{group}]\n{name} = {module}\n")
        return module


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path / "site")
    made.path.mkdir()
    monkeypatch.syspath_prepend(made.path)
    yield made
    for module in made.modules:
        sys.modules.pop(module, None)
