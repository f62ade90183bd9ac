"""Whatever is typed: a configuration, or a ConfigError."""

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rllm_core.config import RunConfig, load
from rllm_core.errors import ConfigError

words = st.sampled_from(
    [
        "run",
        "benchmark",
        "trackers",
        "models",
        "harness",
        "policy",
        "use",
        "name",
        "0",
        "1",
        "x",
        "kind",
        "steps",
        "max",
        "ids",
        "",
        " ",
        "validation",
        "scorer",
    ]
)
values = st.sampled_from(
    [
        "",
        "3",
        "-1",
        "1.5",
        "nan",
        "true",
        "[]",
        "[1]",
        "{}",
        "{a=1}",
        "{use='b'}",
        "'a'",
        "a b",
        "train",
        "1979-05-27",
        "[[]]",
        "[{use='a'},{use=1}]",
        "\n",
        "\x00",
        "é",
    ]
)
overrides = st.builds(
    lambda path, value: f"{'.'.join(path)}={value}", st.lists(words, min_size=1, max_size=4), values
)
lines = st.one_of(
    overrides,
    words.map(lambda w: f"[{w}]"),
    words.map(lambda w: f"[[{w}]]"),
    st.builds(lambda a, b: f"[{a}.{b}]", words, words),
)


def only_config_errors(**given) -> None:
    with suppress(ConfigError):
        assert isinstance(load(environ=given.pop("environ", {}), **given), RunConfig)


@settings(max_examples=300, deadline=None)
@given(st.lists(overrides, max_size=4))
@example(["models=3", "models.policy.name=x"])
@example(["trackers.0.use=a"])
@example(["benchmark.use=a", "benchmark=[]", "benchmark.use=b"])
def test_overrides(typed: list[str]) -> None:
    only_config_errors(overrides=typed)


@settings(max_examples=300, deadline=None)
@given(st.lists(lines, max_size=6), st.lists(overrides, max_size=2))
def test_files(text: list[str], typed: list[str]) -> None:
    only_config_errors(text="\n".join(text), overrides=typed)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.lists(words, max_size=3).map(lambda p: "RLLM__" + "__".join(p)), values))
def test_variables(environ: dict) -> None:
    only_config_errors(environ=environ)


@pytest.mark.parametrize("value", [3, [3], [[]], "x", {"a": {"b": None}}, {1: 2}, [{}], object()])
@pytest.mark.parametrize("section", ["run", "benchmark", "models", "harness", "trackers", "x"])
def test_python_values(section: str, value: object) -> None:
    only_config_errors(values={section: value})
