"""The code of the two pages on agents and benchmarks runs as it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in ("agents", "benchmarks")
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_code_runs(code):
    exec(compile(code, "docs", "exec"), {"__name__": "docs"})


def test_the_options_of_react_are_those_of_the_table():
    import attrs

    from rllm_core.harness.react import React

    table = (DOCS / "agents.md").read_text().partition("## react")[2].partition("## An")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [
        a.name for a in attrs.fields(React.Options)
    ]
