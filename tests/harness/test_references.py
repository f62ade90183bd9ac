"""References by `module:object` and `file.py:object`, and what is said when they lead nowhere."""

import sys

import pytest

from rllm_core.errors import ConfigError
from rllm_core.references import resolve_object


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_of_the_current_directory(here):
    (here / "my_agents_a.py").write_text("class Box:\n    def solve(): return 'found'\n")
    assert resolve_object("my_agents_a:Box.solve")() == "found"


def test_a_file_and_what_lies_beside_it(here):
    folder = here / "some where"
    folder.mkdir()
    (folder / "beside_b.py").write_text("VALUE = 7\n")
    (folder / "agent.py").write_text("import beside_b\ndef solve(): return beside_b.VALUE\n")
    assert resolve_object("some where/agent.py:solve")() == 7
    assert resolve_object("some where/agent.py:solve") is resolve_object(f"{folder}/agent.py:solve")


def test_an_object_stands_for_itself():
    assert resolve_object(len) is len


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("no_such_module_c:solve", ["no module 'no_such_module_c'", "installed packages"]),
        ("nowhere.py:solve", ["no file nowhere.py"]),
        ("json:lods", ["json has no 'lods'", "did you mean"]),
        ("json", ["does not name an object", "package.module:name"]),
        ("json:", ["does not name an object"]),
        (":loads", ["does not name an object"]),
    ],
)
def test_dead_ends_are_clear_sentences(here, reference, parts):
    with pytest.raises(ConfigError) as caught:
        resolve_object(reference)
    for part in parts:
        assert part in str(caught.value)


def test_a_module_that_fails_says_how(here):
    (here / "broken_d.py").write_text("import missing_dependency_e\n")
    with pytest.raises(ConfigError, match="broken_d failed while it was imported: ModuleNotFound"):
        resolve_object("broken_d:solve")
    (here / "broken_f.py").write_text("1 / 0\n")
    for reference in ("broken_f:x", "broken_f.py:x", "broken_f.py:x"):
        with pytest.raises(ConfigError, match="ZeroDivisionError"):
            resolve_object(reference)
