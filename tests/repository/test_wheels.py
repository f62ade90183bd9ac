"""Each package on its own: its wheel, installed into an empty environment, works without the rest.

Third-party packages are held at the versions of the environment that runs the tests, so that they
come from uv's cache.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))
UV = [sys.executable, "-m", "uv"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: object, **more) -> str:
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def uv_environment() -> dict[str, str]:
    """The variables with which the installer runs uv, less the environment it installs into."""
    variables = runpy.run_path(str(ROOT / "scripts/install.py"))["uv_environment"]()
    return {name: value for name, value in variables.items() if name != "VIRTUAL_ENV"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory, uv_environment) -> Path:
    """A folder with a wheel of every package, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in (ROOT, *PLUGINS):
        run(*UV, "build", "--quiet", "--wheel", "--out-dir", folder, package, env=uv_environment)
    return folder


@pytest.fixture(scope="module")
def versions(tmp_path_factory, uv_environment) -> Path:
    """A constraints file of what is installed here."""
    frozen = run(*UV, "pip", "freeze", "--python", sys.executable, env=uv_environment)
    pinned = [line for line in frozen.splitlines() if "==" in line and " @ " not in line]
    path = tmp_path_factory.mktemp("versions") / "constraints.txt"
    path.write_text("\n".join(pinned))
    return path


def lists_itself(python: Path, plugin: Path, tmp_path: Path) -> None:
    """Check that the command lists the plugin, and no other plugin of this repository."""
    rllm = python.parent / "rllm"
    listed = run(rllm, "plugins", cwd=tmp_path, env=os.environ | {"COLUMNS": "200"})
    others = {other.name for other in PLUGINS} - {plugin.name}
    assert plugin.name in listed.split()
    assert not others & set(listed.split())


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_works_alone(plugin, wheels, versions, uv_environment, tmp_path):
    python = tmp_path / "venv/bin/python"
    run(*UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    [module] = {path.parent.name for path in plugin.glob("rllm_*/__init__.py")}
    places = ",".join(filter(None, [str(wheels), uv_environment.get("UV_FIND_LINKS")]))
    run(
        *UV,
        *("pip", "install", "--quiet", "--python", python),
        *("--constraints", versions, module.replace("_", "-")),
        env=uv_environment | {"UV_FIND_LINKS": places},
    )
    run(python, "-I", "-c", f"import {module}", cwd=tmp_path)
    lists_itself(python, plugin, tmp_path)


def test_plain_pip_installs_a_plugin(wheels, versions, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    plugin = ROOT / "plugins/benchmarks/arithmetic"
    environment = os.environ | {
        "PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}"
    }
    run(
        python,
        *("-m", "pip", "install", "--quiet", "--constraint", versions),
        "rllm-benchmark-arithmetic",
        env=environment,
    )
    run(python, "-I", "-c", "import rllm_benchmark_arithmetic", cwd=tmp_path)
    lists_itself(python, plugin, tmp_path)
    checked_and_runnable(python, tmp_path)
    installed_and_removed(python, wheels, tmp_path)


def test_an_environment_of_uv_is_served_by_uv(wheels, versions, uv_environment, tmp_path):
    python = tmp_path / "venv/bin/python"
    run(*UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    places = ",".join(filter(None, [str(wheels), uv_environment.get("UV_FIND_LINKS")]))
    run(
        *UV,
        *("pip", "install", "--quiet", "--python", python, "--constraints", versions, "rllm-core"),
        env=uv_environment | {"UV_FIND_LINKS": places},
    )
    here = Path(run(sys.executable, "-c", "import uv; print(uv.find_uv_bin())").strip()).parent
    path = {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    installed_and_removed(python, wheels, tmp_path, **path)


def checked_and_runnable(python: Path, tmp_path: Path) -> None:
    """Check that every plugin is in order, requirements included, and that a run accepts them."""
    rllm, quiet = python.parent / "rllm", os.environ | {"RLLM_HOME": str(tmp_path / "home")}
    states = json.loads(run(rllm, "plugins", "--check", "--json", cwd=tmp_path, env=quiet))
    assert {state["state"] for state in states} == {"ok"}
    model = ("--model", "m", "--base-url", "http://localhost:1/v1")
    resolved = run(rllm, "eval", "arithmetic", *model, "--dry-run", cwd=tmp_path, env=quiet)
    assert 'use = "arithmetic"' in resolved


def installed_and_removed(python: Path, wheels: Path, tmp_path: Path, **more: str) -> None:
    """Check that one more comes from the folder of wheels alone, and goes again."""
    rllm, environ = python.parent / "rllm", os.environ | more
    told = run(rllm, "install", "jsonl", "--find-links", wheels, cwd=tmp_path, env=environ)
    assert "tracker/jsonl 0.1.0  ok" in told
    run(python, "-I", "-c", "import rllm_tracker_jsonl", cwd=tmp_path)
    run(rllm, "uninstall", "tracker/jsonl", cwd=tmp_path, env=environ)
    assert "jsonl" not in run(rllm, "plugins", cwd=tmp_path).split()
