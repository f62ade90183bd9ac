"""A resolved file runs again: `load(text=to_toml(c)) == c`, for any configuration."""

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_core.config import (
    BenchmarkTable,
    ModelTable,
    PluginsTable,
    PluginTable,
    RunConfig,
    RunSettings,
    load,
    to_data,
    to_toml,
)
from rllm_core.config.locate import lines_of

keys = st.text(
    st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x2FF), min_size=1, max_size=6
)
leaves = st.one_of(
    st.integers(-(2**62), 2**62),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=5,
)
RESERVED = {a.name for a in attrs.fields(BenchmarkTable)} | {"use"}
options = st.dictionaries(keys.filter(lambda k: k not in RESERVED), values, max_size=3)
plugins = st.builds(PluginTable, st.text(min_size=1, max_size=8), options)
tasks = st.builds(
    BenchmarkTable,
    use=st.text(min_size=1, max_size=8),
    split=st.none() | st.text(max_size=5),
    max=st.none() | st.integers(1, 9),
    skip=st.integers(0, 9),
    ids=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    shuffle=st.booleans(),
    file=st.none() | st.text(max_size=5),
    options=options,
)
models = st.builds(
    ModelTable,
    name=st.none() | st.text(max_size=5),
    temperature=st.none() | st.floats(0, 2),
    top_k=st.none() | st.integers(0, 5),
)
common = {
    "name": st.none() | st.text(max_size=5),
    "seed": st.integers(0, 99),
    "deadline": st.floats(1, 9e9),
}
runs = st.one_of(
    st.builds(RunSettings, kind=st.just("eval"), attempts=st.integers(1, 9), **common),
    st.builds(
        RunSettings, kind=st.just("train"), learning_rate=st.none() | st.floats(1e-9, 1), **common
    ),
)


@st.composite
def configs(draw) -> RunConfig:
    run = draw(runs)
    train = run.kind == "train"
    return RunConfig(
        run=run,
        benchmark=tuple(draw(st.lists(tasks, max_size=3))),
        validation=draw(st.none() | tasks) if train else None,
        harness=draw(plugins),
        scorer=draw(st.none() | plugins),
        sandbox=draw(st.none() | plugins),
        models=draw(st.dictionaries(keys, models, max_size=2)),
        backend=draw(plugins) if train else draw(st.none() | plugins),
        algorithm=draw(plugins) if train else None,
        trackers=tuple(draw(st.lists(plugins, max_size=2))),
        plugins=PluginsTable(tuple(draw(st.lists(st.text(), max_size=2)))),
    )


@settings(max_examples=30, deadline=None)
@given(configs())
def test_a_resolved_file_loads_to_the_same_configuration(config: RunConfig) -> None:
    assert load(text=to_toml(config), environ={}) == config


@settings(max_examples=30, deadline=None)
@given(configs())
def test_python_values_and_the_file_mean_the_same(config: RunConfig) -> None:
    assert load(values=to_data(config), environ={}) == config


@settings(max_examples=30, deadline=None)
@given(configs())
def test_every_key_of_a_file_has_its_line(config: RunConfig) -> None:
    text = to_toml(config)
    lines = text.split("\n")
    places = lines_of(text)
    assert ("run", "seed") in places
    for path, line in places.items():
        if not path[-1].isdigit() and path[-1].isidentifier() and path[-1].isascii():
            assert path[-1] in lines[line - 1]
