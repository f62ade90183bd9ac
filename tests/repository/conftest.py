"""What the tests of the repository itself look at: its files, as git would track them."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def files(root) -> list[Path]:
    """Every file that is tracked or would be with `git add`."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout: the list of tracked files is unknown")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [root / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.fixture(scope="session")
def sources(root, files) -> list[Path]:
    """The Python files that are shipped: the core's, the facade's and the plugins'."""
    tops = ("rllm", "rllm_core", "plugins")
    return [
        path
        for path in files
        if path.suffix == ".py"
        and path.relative_to(root).parts[0] in tops
        and "tests" not in path.relative_to(root).parts
    ]


@pytest.fixture(scope="session")
def plugins(root) -> list[Path]:
    """The folder of every plugin of this repository."""
    return sorted(path.parent for path in root.glob("plugins/*/*/pyproject.toml"))


@pytest.fixture(scope="session")
def manifest(root) -> dict:
    """The root's pyproject.toml, which the plugins' follow."""
    return tomllib.loads((root / "pyproject.toml").read_text())
