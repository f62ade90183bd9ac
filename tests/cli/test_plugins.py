"""`rllm plugins`: listing without importing, checking, explaining."""

import json
import os
import subprocess
import sys
import tomllib

import pytest


@pytest.fixture
def site(tmp_path):
    """A folder with one good package, and three that misbehave when they are imported."""
    bodies = {
        "loud": "print('HELLO')\nfrom rllm_core import hookimpl\nfrom rllm_core.harness import Harness\n"
        "class Loud(Harness):\n    'A loud one.'\n@hookimpl\ndef rllm_harness():\n    return Loud\n",
        "exits": "raise SystemExit(0)",
        "raises": "raise RuntimeError('no luck')",
        "misspelt": "from rllm_core import hookimpl\n@hookimpl\ndef rllm_harnes(): ...",
    }
    for name, body in bodies.items():
        (tmp_path / f"acme_{name}.py").write_text(body)
        info = tmp_path / f"acme_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.0\nSummary: The {name} one.\n"
        )
        (info / "entry_points.txt").write_text(f"[rllm.harnesses]\n{name} = acme_{name}\n")
    return tmp_path


def run(site, *arguments: str) -> subprocess.CompletedProcess:
    environ = {
        **os.environ,
        "PYTHONPATH": str(site),
        "COLUMNS": "200",
        "RLLM_HOME": str(site / "home"),
    }
    return subprocess.run(
        [sys.executable, "-m", "rllm_core.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
    )


def test_the_list(site) -> None:
    done = run(site, "plugins", "--kind", "harness")
    assert done.returncode == 0
    lines = {line.split()[1]: line.split() for line in done.stdout.splitlines()}
    assert lines["loud"] == ["harness", "loud", "acme-loud", "1.0", "ok"]
    assert lines["react"][2] == "rllm-core"
    assert "HELLO" not in done.stdout


def test_the_check_names_each_that_is_broken(site) -> None:
    done = run(site, "plugins", "--check", "--json", "--kind", "harness")
    assert done.returncode == 1
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert {name: each["state"] for name, each in found.items()} == {
        "exits": "broken",
        "loud": "ok",
        "misspelt": "broken",
        "raises": "broken",
        "react": "ok",
    }
    assert "sys.exit(0)" in found["exits"]["reason"]
    assert "rllm_harnes" in found["misspelt"]["reason"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "no:acme-raises", "plugins"),
        ("plugins", "-p", "no:harness/raises"),
    ],
)
def test_what_is_disabled_is_listed_as_such(site, arguments: tuple[str, ...]) -> None:
    lines = {line.split()[1]: line for line in run(site, *arguments).stdout.splitlines()}
    assert f"disabled: -p {arguments[arguments.index('-p') + 1]}" in lines["raises"]
    assert lines["loud"].endswith("ok")


def test_a_disabled_plugin_cannot_be_named(site) -> None:
    base = ("eval", "arithmetic", "--model", "openai/m", "--harness", "loud", "--dry-run")
    for arguments in ((*base, "-p", "no:loud"), ("-p", "no:loud", *base)):
        done = run(site, *arguments)
        assert done.returncode == 2
        assert "harness 'loud' is disabled (-p no:loud)" in done.stderr
    for word, said in (("no:react", "cannot be disabled"), ("loud", "no:NAME")):
        done = run(site, *base, "-p", word)
        assert (done.returncode, said in done.stderr) == (2, True)


def test_what_is_disabled_stands_in_the_resolved_file(site) -> None:
    done = run(site, "eval", "arithmetic", "--base-url", "http://localhost:1/v1", "--model", "m",
               "-p", "no:loud", "plugins.disable=['x']", "--dry-run")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert tomllib.loads(done.stdout)["plugins"] == {"disable": ["x", "loud"]}


def test_show(site) -> None:
    done = run(site, "plugins", "show", "harness/loud")
    assert done.returncode == 0
    for part in (
        "harness/loud   acme-loud 1.0",
        "The loud one.",
        "A loud one.",
        "capabilities",
        "acme_loud.py",
    ):
        assert part in done.stdout
    assert "HELLO" not in done.stdout
    grpo = json.loads(run(site, "plugins", "show", "grpo", "--json").stdout)
    assert {o["name"] for o in grpo["options"]} >= {"clip_low", "clip_high"}
    assert all(o["doc"] for o in grpo["options"])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "harness/raises",
            ["harness 'raises' is broken: RuntimeError: no luck", "acme-raises 1.0"],
        ),
        ("harness/lod", ["unknown harness 'lod'", "did you mean 'loud'?"]),
        ("lod", ["no plugin 'lod' is installed", "did you mean 'loud'?"]),
        ("harnes/loud", ["there is no kind 'harnes'", "did you mean 'harness'?"]),
    ],
)
def test_what_cannot_be_shown(site, name: str, parts: list[str]) -> None:
    done = run(site, "plugins", "show", name)
    assert done.returncode == 2
    for part in parts:
        assert part in done.stderr
