"""Layers of settings: who wins, what is refused, and how the refusal reads."""

import math
from typing import Any

import pytest

from rllm_core.config import ModelTable, PluginTable, RunConfig, load, to_toml
from rllm_core.errors import ConfigError

FILE = """\
[run]
kind = "train"
steps = 200          # "[not a table]"

[benchmark]
use = "swe-smith"
filters = [
  "a",
]

[harness]
use = "claude-code"
max_turns = 40

[models.policy]
name = "Qwen/Qwen3-32B"
"""


def read(text: str = FILE, **rest) -> RunConfig:
    return load(text=text, environ=rest.pop("environ", {}), **rest)


def refused(text: str = FILE, **rest) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, **rest)
    return str(caught.value)


def test_a_file() -> None:
    config = read()
    assert config.run.kind == "train"
    assert config.run.steps == 200
    assert config.harness == PluginTable("claude-code", {"max_turns": 40})
    assert config.benchmark[0].options == {"filters": ["a"]}
    assert config.policy == ModelTable(name="Qwen/Qwen3-32B")
    assert (config.backend, config.algorithm) == (PluginTable("local"), PluginTable("grpo"))


def test_layers_win_in_order() -> None:
    environ = {"RLLM__RUN__STEPS": "3", "RLLM__RUN__SEED": "4", "RLLM__HARNESS__MAX_TURNS": "5"}
    overrides = ["run.seed=5", "harness.max_turns=6"]
    config = read(environ=environ, overrides=overrides, values={"harness": {"max_turns": 7}})
    assert (config.run.steps, config.run.seed) == (3, 5)
    assert config.harness.options == {"max_turns": 7}
    assert str(config.origin("run.steps")) == "RLLM__RUN__STEPS"
    assert "run.seed=5" in str(config.origin("run.seed"))
    assert "Python" in str(config.origin("harness.max_turns"))
    assert str(config.origin("benchmark.0.filters")) == "the run file:7"


def test_later_overrides_win() -> None:
    assert read(overrides=["run.steps=1", "run.steps=2"]).run.steps == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("true", True), ("[1, 2]", [1, 2]), ("a b", "a b"), ("'x'", "x"), ("1\ny=2", None)],
)
def test_override_values_are_toml_or_text(text: str, value: object) -> None:
    config = read(overrides=[f"harness.x={text}"])
    assert config.harness.options["x"] == (text if value is None else value)


def test_text_that_looks_like_a_number_is_text_where_text_is_wanted() -> None:
    config = read(overrides=["run.name=007", "models.policy.name=1e5"])
    assert config.run.name == "007"
    assert config.policy.name == "1e5"


def test_several_benchmarks() -> None:
    config = read(
        "[[benchmark]]\nuse='a'\n[[benchmark]]\nuse='b'\n",
        overrides=["benchmark.split=dev", "benchmark.1.max=5"],
    )
    assert [(b.use, b.split, b.max) for b in config.benchmark] == [
        ("a", "dev", None),
        ("b", "dev", 5),
    ]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (
            {"text": FILE + "[harnes]\nx=1"},
            ["harnes: unknown table (the run file:17)", "did you mean 'harness'?"],
        ),
        (
            {"overrides": ["run.step=3"]},
            ["run.step: unknown setting of [run]", "did you mean 'steps'?"],
        ),
        (
            {"environ": {"RLLM__RUN__STEPS": "x"}},
            ["run.steps: expected a whole number, not 'x' (RLLM__RUN__STEPS)"],
        ),
        ({"environ": {"RLLM__RUN": "x"}}, ["RLLM__RUN", "RLLM__SECTION__KEY"]),
        ({"overrides": ["run.steps=0"]}, ["run.steps: must be at least 1, not 0"]),
        ({"overrides": ["run.seed=1.5"]}, ["run.seed: expected a whole number, not 1.5"]),
        (
            {"overrides": ["run.kind=eval"]},
            ["run.steps: has no effect in a run of kind 'eval' (the run file:3)"],
        ),
        ({"overrides": ["run.attempts=2"]}, ["run.attempts: has no effect", "run.group_size"]),
        ({"overrides": ["steps=2"]}, ["'steps=2' is no override", "section.key=value"]),
        ({"overrides": ["benchmark.1.max=2"]}, ["there is no such table"]),
        ({"overrides": ["run.steps.x=2"]}, ["run.steps: is no table, but 200"]),
        ({"text": "[run]\nkind = 'x'"}, ["run.kind: expected 'eval' or 'train', not 'x'"]),
        ({"text": "[run\n"}, ["the run file is not valid TOML"]),
        ({"text": "[scorer]\nx = 1"}, ["scorer: names no plugin (the run file:1)"]),
        ({"text": "[benchmark]\nmax = 1"}, ["benchmark: names no benchmark (the run file:1)"]),
        ({"text": "harness = 3"}, ["harness: expected a table, not 3"]),
        ({"text": "run = 3"}, ["run: expected a table, not 3"]),
        ({"text": "[models]\npolicy = 3"}, ["models.policy: expected a table, not 3"]),
    ],
)
def test_what_is_refused_says_what_and_where(given: dict, parts: list[str]) -> None:
    message = refused(**given)
    for part in parts:
        assert part in message


def test_every_problem_is_told_at_once() -> None:
    message = refused(overrides=["run.step=3", "models.policy.temp=1", "benchmark.max=0"])
    assert all(part in message for part in ("run.step:", "models.policy.temp:", "benchmark.max:"))


def test_python_values_reach_every_benchmark_and_a_list_replaces_them() -> None:
    two = "benchmark = ['a', 'b']"
    split = [b.split for b in read(two, values={"benchmark": {"split": "x"}}).benchmark]
    assert split == ["x", "x"]
    assert [b.ids for b in read(two, overrides=["benchmark.ids=['1']"]).benchmark] == [("1",)] * 2
    assert [b.use for b in read(two, values={"benchmark": ["c"]}).benchmark] == ["c"]
    assert [b.use for b in read(two, overrides=[("benchmark", "d")]).benchmark] == ["d"]
    assert [b.use for b in read("benchmark = 'a'", overrides=["benchmark.max=1"]).benchmark] == [
        "a"
    ]


def test_a_name_stands_for_its_table() -> None:
    text = "harness = 'react'\n[models]\npolicy = 'a/b'\n"
    config = read(text, overrides=["harness.max_turns=2", "models.policy.temperature=0"])
    assert config.harness == PluginTable("react", {"max_turns": 2})
    assert config.policy == ModelTable(name="a/b", temperature=0.0)


def test_a_missing_file_offers_its_neighbour(tmp_path) -> None:
    (tmp_path / "grpo.toml").write_text(FILE)
    with pytest.raises(ConfigError, match=r"there is no run file .*\n.*'grpo.toml'"):
        load(tmp_path / "grp.toml", environ={})


def test_the_resolved_file_holds_no_setting_of_the_other_kind() -> None:
    text = to_toml(read("[run]\nkind='eval'\n[benchmark]\nuse='a'"))
    assert "attempts" in text
    assert "group_size" not in text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "path",
    [
        "run.deadline",
        "run.max_error_share",
        "run.learning_rate",
        "run.eval_temperature",
        "run.require_gain",
        "models.policy.temperature",
        "models.policy.top_p",
    ],
)
def test_a_number_that_is_not_finite_is_refused(path, value) -> None:
    values: dict[str, Any] = {"run": {"kind": "train"}}
    *tables, name = path.split(".")
    inner = values
    for table in tables:
        inner = inner.setdefault(table, {})
    inner[name] = value
    with pytest.raises(ConfigError, match=f"{path}: must be"):
        load(values=values, environ={})


def test_top_p_is_above_zero_and_a_name_is_short() -> None:
    with pytest.raises(ConfigError, match="top_p: must be above 0 and at most 1, not 0"):
        load(values={"models": {"policy": {"top_p": 0}}}, environ={})
    assert load(values={"models": {"policy": {"top_p": 1}}}, environ={}).policy.top_p == 1
    assert load(values={"run": {"name": "n" * 200}}, environ={}).run.name == "n" * 200
    with pytest.raises(
        ConfigError, match=r"run.name: must be at most 200 characters long, not 201"
    ):
        load(values={"run": {"name": "n" * 201}}, environ={})
