"""The README's option table is the options' own documentation."""

from pathlib import Path

from rllm_backend_local import Options

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_lists_every_option():
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    table = {row.split("`")[1] for row in rows}
    assert {field.name for field in Options.__attrs_attrs__} <= table
