"""Typed options: what is accepted, and how a refusal reads."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from rllm_core.errors import ConfigError
from rllm_core.plugins import Origin, Origins, build_options
from rllm_core.plugins.options import Where


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


@attrs.frozen
class Inner:
    depth: int = 1


class Plugin:
    @attrs.frozen
    class Options:
        max_turns: int = attrs.field(default=1, validator=attrs.validators.ge(1))
        share: float = 0.5
        on: bool = False
        text: str = ""
        note: str | None = None
        mode: Mode = Mode.FAST
        side: Literal["left", "right"] = "left"
        tools: tuple[str, ...] = ()
        either: int | str = 0
        place: Path = Path()
        inner: Inner = Inner()
        inners: tuple[Inner, ...] = ()
        table: Mapping[str, float] = attrs.Factory(dict)
        anything: Any = None


WHERE = Where(
    ("harness",),
    "harness 'x'",
    "rllm plugins show harness/x",
    Origins(
        {("harness", "max_turn"): Origin("a.toml:14"), ("harness", "text"): Origin("--t", "007")}
    ),
)


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ({"max_turns": 3}, "max_turns", 3),
        ({"share": 1}, "share", 1.0),
        ({"mode": "safe"}, "mode", Mode.SAFE),
        ({"side": "right"}, "side", "right"),
        ({"tools": ["a", "b"]}, "tools", ("a", "b")),
        ({"either": "x"}, "either", "x"),
        ({"place": "/a"}, "place", Path("/a")),
        ({"inner": {"depth": 3}}, "inner", Inner(3)),
        ({"inners": [{"depth": 3}]}, "inners", (Inner(3),)),
        ({"table": {"a": 1}}, "table", {"a": 1.0}),
        ({"anything": {"a": [1]}}, "anything", {"a": [1]}),
        ({"text": 7}, "text", "007"),
    ],
)
def test_what_fits(table: dict, name: str, value: object) -> None:
    found = getattr(build_options(Plugin, table, WHERE), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"max_turn": 3},
            "harness.max_turn: unknown option of harness 'x' (a.toml:14)\ndid you mean 'max_turns'?   `rllm plugins show harness/x` lists its options",
        ),
        ({"max_turns": "3"}, "harness.max_turns: expected a whole number, not '3'"),
        ({"max_turns": True}, "harness.max_turns: expected a whole number, not True"),
        ({"max_turns": 0}, "harness.max_turns: must be >= 1: 0"),
        ({"share": "x"}, "harness.share: expected a number, not 'x'"),
        ({"on": 1}, "harness.on: expected true or false, not 1"),
        ({"note": 1}, "harness.note: expected text, not 1"),
        ({"mode": "fats"}, "harness.mode: expected 'fast' or 'safe', not 'fats'"),
        ({"side": "up"}, "harness.side: expected 'left' or 'right', not 'up'"),
        ({"tools": "ab"}, "harness.tools: expected a list of text, not 'ab'"),
        ({"tools": [1]}, "harness.tools: expected a list of text, not [1]"),
        ({"either": 1.5}, "harness.either: expected a whole number or text, not 1.5"),
        ({"inner": 1}, "harness.inner: expected a table, not 1"),
        ({"inner": {"dept": 1}}, "harness.inner.dept: unknown option\ndid you mean 'depth'?"),
        (
            {"inners": [{}, {"depth": "x"}]},
            "harness.inners.1.depth: expected a whole number, not 'x'",
        ),
        ({"table": {"a": "x"}}, "harness.table: expected a number under 'a', not 'x'"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(table: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_options(Plugin, table, WHERE)
    assert message in str(caught.value)
