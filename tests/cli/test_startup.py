"""Start-up is a feature: what is imported when, counted; the times are in tests/perf/startup.py."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp",
    "asyncio",
    "cattrs",
    "datasets",
    "httpx",
    "importlib.metadata",
    "numpy",
    "openai",
    "renderers",
    "rich",
    "tokenizers",
    "torch",
    "transformers",
}
COUNT = """
import json, sys
{code}
print(json.dumps(sorted(sys.modules)))
"""
MAIN = """
import contextlib, io
from rllm_core.cli.frame import run_command
with contextlib.redirect_stdout(io.StringIO()):
    run_command({arguments})
"""


def modules(code: str, environ: dict | None = None) -> set[str]:
    """What a fresh interpreter has imported after the code."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(code=code)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return modules("pass")


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import rllm_core", 75),
        ("import rllm", 95),
        ("import rllm_core.plugins, rllm_core.config", 140),
        (MAIN.format(arguments=["--help"]), 170),
        (MAIN.format(arguments=["--version"]), 170),
        (MAIN.format(arguments=["plugins"]), 180),
        (MAIN.format(arguments=["train", "--help"]), 180),
    ],
)
def test_nothing_heavy_is_imported(bare, code: str, most: int) -> None:
    found = modules(code) - bare
    assert not found & HEAVY
    assert len(found) <= most, sorted(found)


def test_help_imports_no_command(bare) -> None:
    found = modules(MAIN.format(arguments=["--help"]))
    assert {m for m in found if m.startswith("rllm_core.cli.")} == {
        "rllm_core.cli.disabling",
        "rllm_core.cli.frame",
        "rllm_core.cli.group",
        "rllm_core.cli.shadow",
        "rllm_core.cli.streams",
    }
