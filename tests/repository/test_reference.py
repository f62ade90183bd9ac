"""scripts/reference.py: its pages tell every hook, command and setting; `--check` finds stale ones.

Whether the pages that are checked in are up to date is asked by a phase of CI.
"""

import runpy
import sys

import pytest

from rllm_core import hookspecs
from rllm_core.cli.group import COMMANDS
from rllm_core.cli.options import FLAGS
from rllm_core.config import schema
from rllm_core.plugins import GROUPS


@pytest.fixture
def script(root, tmp_path, monkeypatch):
    """script(*flags): its exit code; it writes to a folder of its own."""
    names = runpy.run_path(str(root / "scripts/reference.py"))
    main = names["main"]
    monkeypatch.setitem(main.__globals__, "PAGES", tmp_path / "reference")

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["reference.py", *flags])
        return main()

    return run


def test_check_finds_what_is_stale(script, tmp_path, capsys):
    assert script("--check") == 1  # nothing is there yet
    assert script() == 0
    assert script("--check") == 0
    capsys.readouterr()
    (tmp_path / "reference/harness.md").write_text("old")
    (tmp_path / "reference/gone.md").write_text("of a kind that is no more")
    assert script("--check") == 1
    assert "gone.md" in (printed := capsys.readouterr().out)
    assert "harness.md" in printed
    assert "backend.md" not in printed
    assert script() == 0
    assert script("--check") == 0


def test_everything_is_told(script, tmp_path):
    script()
    pages = {path.stem: path.read_text() for path in (tmp_path / "reference").iterdir()}
    for name in (name for name in vars(hookspecs) if name.startswith("rllm_")):
        assert any(f"`{name}" in page for page in pages.values()), name
    assert set(GROUPS) <= set(pages)
    for command in COMMANDS:
        assert f"## `rllm {command}" in pages["commands"]
    for flag in FLAGS:
        assert f"`{flag.name}`" in pages["commands"]
    for field in schema.RunSettings.__attrs_attrs__:
        assert f"| `{field.name}` |" in pages["run-file"]
