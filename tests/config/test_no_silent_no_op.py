"""No setting is silently without effect: each is read by somebody, or refused."""

import ast
from pathlib import Path

import attrs
import pytest

import rllm_core
from rllm_core.config import BenchmarkTable, ModelTable, RunSettings, load
from rllm_core.errors import ConfigError

FIELDS = [a for a in attrs.fields(RunSettings) if a.name != "kind"]


@pytest.mark.parametrize("kind", ["eval", "train"])
@pytest.mark.parametrize("name", [a.name for a in FIELDS])
def test_a_setting_of_the_other_kind_is_refused(name: str, kind: str) -> None:
    kinds = attrs.fields_dict(RunSettings)[name].metadata["kinds"]
    texts = {"name": "x", "directory": "x", "replay": "x", "record": True}
    value = {**texts, "max_error_share": 1, "require_gain": 1}.get(name, 3)
    given = {"run": {"kind": kind, name: value}}
    if kind in kinds:
        assert getattr(load(values=given, environ={}).run, name) == value
        return
    with pytest.raises(ConfigError, match=f"run.{name}: has no effect in a run of kind '{kind}'"):
        load(values=given, environ={})


@pytest.mark.parametrize("section", ["validation", "algorithm"])
def test_a_training_table_in_an_evaluation_is_refused(section: str) -> None:
    with pytest.raises(ConfigError, match=f"{section}: has no effect in a run of kind 'eval'"):
        load(values={section: {"use": "x"}}, environ={})


def read_outside_config() -> set[str]:
    """Every attribute that the core reads or writes outside the schema's own room."""
    root = Path(rllm_core.__file__).parent
    names: set[str] = set()
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] not in {"config", "testing"}:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return names


@pytest.mark.parametrize("table", [RunSettings, BenchmarkTable, ModelTable])
def test_every_setting_is_read_by_somebody(table: type) -> None:
    unread = {a.name for a in attrs.fields(table)} - read_outside_config()
    assert not unread


@pytest.mark.parametrize("table", [RunSettings, BenchmarkTable, ModelTable])
def test_every_setting_has_its_sentence(table: type) -> None:
    for a in attrs.fields(table):
        assert a.name == "options" or a.metadata["doc"]
