"""docs/configuration.md tells every setting, as the schema does."""

import json
from pathlib import Path

import attrs
import pytest

from rllm_core.config import BenchmarkTable, ModelTable, PluginsTable, RunSettings, load
from rllm_core.plugins.shapes import describe

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def table(cls: type) -> str:
    """The settings of a class as a Markdown table."""
    attrs.resolve_types(cls)
    lines = ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
    for a in attrs.fields(cls):
        if a.name == "options":
            continue
        kinds = a.metadata["kinds"]
        only = f" ({kinds[0]} only)" if len(kinds) == 1 else ""
        default = json.dumps(a.default) if a.default is not None else ""
        lines.append(f"| `{a.name}` | {describe(a.type)} | {default} | {a.metadata['doc']}{only} |")
    return "\n".join(lines)


@pytest.mark.parametrize("cls", [RunSettings, BenchmarkTable, ModelTable, PluginsTable])
def test_the_tables_are_those_of_the_schema(cls: type) -> None:
    assert table(cls) in DOCS.read_text(encoding="utf-8"), f"write this:\n{table(cls)}"


def test_the_example_is_a_run_file() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    assert load(text=text, environ={}).run.kind == "train"
