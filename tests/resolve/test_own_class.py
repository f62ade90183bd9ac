"""A class in a user's own file stands in for an installed plugin, only where it is named."""

import textwrap

import pytest

from rllm_core.config import load
from rllm_core.errors import ConfigError
from rllm_core.resolve import check

MINE = """
from rllm_core.algorithms.grpo import GRPO
from rllm_core.benchmark import GeneratedRows, RowBenchmark, Task
from rllm_core.harness.react import React

class Copy(RowBenchmark):
    splits = {"train": "all", "test": "all"}
    source = GeneratedRows(lambda split, i: {"d": i}, {"all": 10})

    def task(self, row):
        return Task.of(f"{row['d']}=", private={"answer": str(row["d"])})

    def grade(self, task, output):
        return output == task.private["answer"]

class Agent(React): ...
class Credit(GRPO): ...
class NoOptions(GRPO):
    Options = None

def score(task, episode):
    return 1.0
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(textwrap.dedent(MINE))
    (tmp_path / "unasked.py").write_text("raise SystemExit('never imported')")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def resolved(**tables):
    parts = {"benchmark": "mine.py:Copy", "harness": "react", "algorithm": "grpo", **tables}
    text = '[run]\nkind = "train"\n[models.policy]\nname = "tiny"\n'
    text += "".join(f'[{table}]\nuse = "{use}"\n' for table, use in parts.items())
    return check(load(text=text))


def test_each_kind_may_be_ones_own(mine):
    run = resolved(harness=f"{mine}:Agent", scorer="mine.py:score", algorithm="mine.py:Credit")
    names = [part.cls.__name__ for part in (*run.benchmarks, run.harness, run.algorithm)]
    assert names == ["Copy", "Agent", "Credit"]
    assert [task.text for task in run.benchmarks[0].make().tasks("test")][:2] == ["0=", "1="]
    assert run.config.benchmark[0].use == "mine.py:Copy"


@pytest.mark.parametrize(
    ("table", "use", "message"),
    [
        ("benchmark", "mine.py:score", "is no benchmark"),
        ("benchmark", "mine.py:Credit", "is no benchmark"),
        ("benchmark", "mine.py:Cpy", "has no 'Cpy'"),
        ("algorithm", "mine.py:Copy", "is no algorithm"),
        ("algorithm", "mine.py:NoOptions", "not an attrs class"),
        ("benchmark", "none.py:Copy", "no file none.py"),
    ],
)
def test_what_is_none_is_refused_with_its_place(mine, table, use, message):
    with pytest.raises(ConfigError, match=message) as caught:
        resolved(**{table: use})
    assert f"{table}.use" in str(caught.value)
