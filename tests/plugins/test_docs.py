"""docs/plugins.md: its example is a plugin, and its tables are those of the code."""

from pathlib import Path

from rllm_core import hookspecs
from rllm_core.plugins import GROUPS
from rllm_core.plugins.kinds import BASES
from rllm_core.types import Task

from .test_host import host

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


async def test_the_example_is_a_plugin(site) -> None:
    body = DOCS.partition("```python\n")[2].partition("```")[0]
    points = "[rllm.harnesses]\necho = rllm_harness_echo\n"
    site.add("rllm-harness-echo", body, points=points)
    echo = host(site).load("harness", "echo")
    outcome = await echo(echo.Options(prefix="> ")).run(Task.of("hello"), None)
    assert outcome.output == "> hello"


def test_every_kind_has_its_row() -> None:
    for kind, group in GROUPS.items():
        base = BASES.get(kind, "").replace(":", ".")
        shown = f"`{base}` |" if base else "|"
        assert f"| {kind} | `{group}` | `rllm_{kind}` | {shown}" in DOCS


def test_every_event_is_told() -> None:
    kinds = {f"rllm_{kind}" for kind in GROUPS}
    events = {name for name in vars(hookspecs) if name.startswith("rllm_")} - kinds
    assert events
    for event in events:
        assert f"`{event}(" in DOCS.replace("\n", " ")


def test_every_suite_and_fixture_is_told() -> None:
    import rllm_core.testing
    from rllm_core.testing import fixtures

    for name in (*rllm_core.testing.__all__, *fixtures.__all__):
        assert f"`{name}`" in DOCS, name
