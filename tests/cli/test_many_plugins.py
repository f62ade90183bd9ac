"""A hundred and twenty packages installed, some of them bad: nobody notices who did not ask."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from attrs import field, frozen
from rllm_core import hookimpl
from rllm_core.harness import Harness

class Good(Harness):
    "A harness for tests."

@hookimpl
def rllm_harness():
    return Good
"""
BAD = {
    "raises": "raise RuntimeError('no luck')",
    "exits": "import sys; sys.exit(0)",
    "misspelt": GOOD.replace("def rllm_harness(", "def rllm_harnes("),
    "newer": GOOD + "RLLM_API = '0.9'\n",
    "optionless": GOOD.replace('    "A harness', '    Options = 3\n    "A harness'),
}
"""Name → a module that must be reported as broken by `--check`, and by it alone."""
LOUD = "import sys\nprint('HELLO')\nprint('HELLO', file=sys.stderr)\n" + GOOD
METADATA = (
    "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: One.\nRequires-Dist: {needs}\n"
)
MODULES = "import json, sys\n{}\nprint('\\n' + json.dumps(sorted(sys.modules)))"


def install(
    folder: Path, name: str, body: str, points: str | None = None, needs: str = "attrs"
) -> None:
    """One package, as an installer leaves it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(body)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(name=name, needs=needs))
    short = name.removeprefix("acme-")
    (info / "entry_points.txt").write_text(points or f"[rllm.harnesses]\n{short} = {module}\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """120 packages: good ones, and one of each bad kind among them."""
    folder = tmp_path_factory.mktemp("site")
    for name, body in BAD.items():
        install(folder, f"acme-{name}", body)
    install(folder, "acme-loud", LOUD)
    install(folder, "acme-twin", GOOD)
    install(folder, "other-twin", GOOD, "[rllm.harnesses]\ntwin = other_twin\n")
    install(folder, "acme-mangled", GOOD, "[rllm.harnesses]\nno line of this kind\n")
    install(folder, "acme-unreadable", GOOD, needs=">>> what")
    install(folder, "acme-hungry", "import a_library\n" + GOOD, needs="a-library>=3")
    install(
        folder,
        "acme-command",
        "raise RuntimeError('no luck')",
        "[rllm.commands]\nbad = acme_command\n",
    )
    for number in range(120 - len(list(folder.glob("*.dist-info")))):
        install(folder, f"acme-good-{number}", GOOD)
    return folder


def python(site: Path, *words: str) -> subprocess.CompletedProcess:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RLLM_")}
    environ |= {"PYTHONPATH": str(site), "COLUMNS": "300", "RLLM_HOME": str(site / "home")}
    return subprocess.run(
        [sys.executable, *words],
        check=False, capture_output=True, text=True, timeout=100, env=environ,
    )  # fmt: skip


def rllm(site: Path, *words: str) -> subprocess.CompletedProcess:
    return python(site, "-m", "rllm_core.cli", *words)


@pytest.mark.parametrize(
    ("words", "most"), [(["--help"], 175), (["plugins"], 260), (["eval", "--help"], 190)]
)
def test_no_plugin_is_imported(site, words: list[str], most: int) -> None:
    code = f"from rllm_core.cli.frame import run_command\nassert run_command({words}) == 0"
    done = python(site, "-c", MODULES.format(code))
    found = set(json.loads(done.stdout.splitlines()[-1]))
    bare = set(json.loads(python(site, "-c", MODULES.format("")).stdout.splitlines()[-1]))
    assert not [
        m
        for m in found
        if m.startswith(("acme", "other", "rllm_")) and not m.startswith("rllm_core")
    ]
    assert len(found - bare) <= most
    assert "HELLO" not in done.stdout + done.stderr


def test_each_bad_one_is_reported_with_its_reason(site) -> None:
    listed = rllm(site, "plugins", "--json")
    assert listed.returncode == 0
    before = {(s["package"], s["name"]): s for s in json.loads(listed.stdout)}
    done = rllm(site, "plugins", "--check", "--json")
    assert done.returncode == 1
    after = {(s["package"], s["name"]): s for s in json.loads(done.stdout)}
    states = {name: s["state"] for (_, name), s in after.items()}
    assert {n for n, s in states.items() if s == "broken"} == {*BAD, "unreadable", "bad", "?"}
    assert [p for (p, _), s in after.items() if s["state"] == "ambiguous"] == [
        "acme-twin",
        "other-twin",
    ]
    assert after["acme-hungry", "hungry"]["state"] == "needs"
    assert "install 'a-library>=3'" in after["acme-hungry", "hungry"]["mend"]
    reasons = {name: s["reason"] for (_, name), s in after.items()}
    for name, reason in {
        "raises": "RuntimeError: no luck",
        "exits": "sys.exit(0)",
        "misspelt": "rllm_harnes",
        "newer": "built for plugin API 0.9",
        "optionless": "Options is not an attrs class",
        "unreadable": "'>>> what' is no requirement",
        "?": "no line of this kind",
        "twin": "offers it too",
        "loud": "it prints while it is loaded: 'HELLO",
    }.items():
        assert reason in reasons[name], name
    assert states["loud"] == "ok"
    assert sum(s == "ok" for s in states.values()) > 100
    known_without_importing = {n for (_, n), s in before.items() if s["state"] != "ok"}
    assert known_without_importing == {"?", "unreadable", "hungry", "twin"}


def test_none_changes_what_another_command_does(site, tmp_path) -> None:
    words = (
        "eval",
        "arithmetic",
        "--model",
        "m",
        "--base-url",
        "http://localhost:1/v1",
        "--dry-run",
    )
    among, alone = rllm(site, *words), rllm(tmp_path, *words)
    assert (among.returncode, among.stdout, among.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )
    assert among.returncode == 0, among.stderr
    loud = rllm(site, *words, "--harness", "loud")
    assert (loud.returncode, "HELLO" in loud.stdout) == (0, False)
    bad = rllm(site, "bad")
    assert (bad.returncode, "command 'bad' is broken: RuntimeError: no luck" in bad.stderr) == (
        2,
        True,
    )


def test_filters(site) -> None:
    broken = json.loads(rllm(site, "plugins", "--status", "ambiguous", "--json").stdout)
    assert {s["package"] for s in broken} == {"acme-twin", "other-twin"}
    lines = rllm(site, "plugins", "--kind", "command", "--timings").stdout.splitlines()
    assert lines[1].split() == ["KIND", "NAME", "PACKAGE", "VERSION", "MS", "STATUS"]
    assert float(lines[2].split()[4]) > 0
