"""An environment of its own, and a reader of pages that types what they say.

The environment has wheels of the core and of the plugins that the tutorials use. Third-party
packages it shares with the environment that runs the tests, through a `.pth` file: they are not
what is tested, and torch alone would take minutes to install.
"""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT, ROOT / "plugins/backends/local", ROOT / "plugins/benchmarks/arithmetic")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 120

# `pip install` and `pip uninstall`, by uv: it takes a tenth of the time, and what a package depends
# on is there already.
PIP = """#!/bin/sh
command=$1; shift
case $command in install) set -- --no-deps "$@" ;; esac
exec {uv} pip "$command" --quiet --python {python} "$@"
"""


class Environment:
    """A virtual environment, and a home for what runs in it."""

    def __init__(self, folder: Path) -> None:
        uv = runpy.run_path(str(ROOT / "scripts/install.py"))["uv_environment"]()
        self.variables = {
            **{name: value for name, value in uv.items() if not name.startswith("PYTHON")},
            "VIRTUAL_ENV": str(folder / "venv"),
            "PATH": f"{folder / 'venv/bin'}:{os.environ['PATH']}",
            "RLLM_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "error::ResourceWarning",
        }
        self.uv = _uv()
        self._make(folder / "venv")
        for package in PACKAGES:
            self.run([self.uv, "build", "-q", "--wheel", "-o", str(folder / "dist"), str(package)])
        wheels = map(str, (folder / "dist").glob("*.whl"))
        self.run(["pip", "install", *wheels])

    def _make(self, venv: Path) -> None:
        self.run([self.uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (pth,) = venv.glob("lib/python*/site-packages")
        (pth / "shared.pth").write_text("\n".join(shared))
        pip = venv / "bin/pip"
        pip.write_text(PIP.format(uv=self.uv, python=venv / "bin/python"))
        pip.chmod(0o755)
        (venv / "bin/uv").symlink_to(self.uv)

    def run(self, command: list[str], cwd: Path | None = None) -> tuple[int, str]:
        """Run a command of a page; its exit code and everything it printed."""
        found = subprocess.run(
            ["/bin/sh", "-c", shlex.join(command)],
            cwd=cwd, env=self.variables, timeout=SECONDS, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return found.returncode, found.stdout


def _uv() -> str:
    from uv import find_uv_bin

    return find_uv_bin()


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Environment:
    """The one environment of all pages: each removes what it installed."""
    pytest.importorskip("uv")
    return Environment(tmp_path_factory.mktemp("tutorials"))


class Reader:
    """Follows a page in an empty folder."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.environment, self.folder = environment, folder

    def follow(self, page: Path) -> None:
        """Type its commands, apply its changes, write its files."""
        for language, body in BLOCK.findall(page.read_text("utf-8")):
            match language:
                case "console":
                    self._type(body)
                case "diff":
                    self._change(body)
                case "python":
                    self._write(body)

    def _type(self, body: str) -> None:
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, *expected = part.strip().splitlines()
            words = shlex.split(command)
            if words[0] == "cd":
                self.folder /= words[1]
                continue
            code, printed = self.environment.run(words, self.folder)
            missing = [line for line in expected if line not in printed]
            refused = any("did you mean" in line for line in expected)
            assert (code == 0) != refused, f"$ {command}\nexit code {code}\n{printed}"
            assert not missing, f"$ {command}\nprinted no {missing}\n{printed}"

    def _change(self, body: str) -> None:
        head, *lines = body.splitlines()
        file = self.folder / head.removeprefix("--- ")
        old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
        text = file.read_text("utf-8")
        assert text.count(old) == 1, f"{file}: not found once:\n{old}"
        file.write_text(text.replace(old, new), "utf-8")

    def _write(self, body: str) -> None:
        name, _, text = body.partition("\n")
        (self.folder / name.removeprefix("# ")).write_text(text, "utf-8")


@pytest.fixture
def reader(environment, tmp_path) -> Reader:
    """A reader in an empty folder."""
    return Reader(environment, tmp_path)
