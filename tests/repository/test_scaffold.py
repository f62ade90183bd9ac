"""`rllm plugins new`: what it writes keeps to our own pattern, and what it refuses."""

import ast
import subprocess
import sys

import pytest

from rllm_core.errors import ConfigError
from rllm_core.scaffold import SCAFFOLDED, new_plugin

from .test_plugins_look_alike import KINDS, differences

FOLDERS = {kind: folder for folder, kind in KINDS.items()}
LONGEST = "a-name-of-thirty-characters-ok"


@pytest.fixture(params=SCAFFOLDED)
def kind(request):
    return request.param


@pytest.fixture(params=["mine", LONGEST])
def package(request, kind, tmp_path):
    return new_plugin(kind, request.param, tmp_path / FOLDERS[kind] / request.param)


def test_it_looks_like_our_own(package, manifest):
    assert list(differences(package, manifest)) == []


def test_it_is_clean(package, root):
    for command in (["check", "--extend-ignore=INP001"], ["format", "--check"]):
        config = ["--config", str(root / "pyproject.toml"), "--no-cache"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *config, str(package)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "No module named ruff" in done.stderr:
            pytest.skip("ruff is not installed")
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_word_of_a_template_is_left(package):
    for path in package.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "MODULE" not in str(path)
            assert "$" not in text.replace("$ ", "")
            if path.suffix == ".py":
                ast.parse(text)


def test_its_hook_answers_with_its_class(package, monkeypatch, kind):
    monkeypatch.syspath_prepend(package)
    (module,) = {path.parent.name for path in package.glob("rllm_*/__init__.py")}
    hook = getattr(__import__(module), f"rllm_{kind}")
    assert hook().__doc__
    sys.modules.pop(module)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My Agent", "try 'my-agent'"),
        ("my_agent", "try 'my-agent'"),
        ("7zip", "try 'zip'"),
        ("a--b", "try 'a-b'"),
        ("-x-", "try 'x'"),
        ("é", "a letter first"),
        ("", "a letter first"),
        ("../up", "try 'up'"),
        ("x" * 31, "at most 30"),
    ],
)
def test_names_that_cannot_be_are_refused(kind, name, hint, tmp_path):
    with pytest.raises(ConfigError, match="cannot be the name") as caught:
        new_plugin(kind, name, tmp_path / "new")
    assert hint in (caught.value.remedy or "")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["class", "nul", "new"])
def test_reserved_names_are_refused(kind, name, tmp_path):
    with pytest.raises(ConfigError, match="reserved"):
        new_plugin(kind, name, tmp_path / "new")


def test_a_name_that_is_taken_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'grpo' is offered by rllm-core"):
        new_plugin("algorithm", "grpo", tmp_path / "new")


def test_nothing_is_overwritten(kind, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        new_plugin(kind, "mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_kind_without_templates_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no template of a sandbox"):
        new_plugin("sandbox", "mine", tmp_path / "new")
