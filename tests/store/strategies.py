"""Hypothesis strategies for what a store holds."""

from hypothesis import strategies as st

from rllm_core.store import BatchRow
from rllm_core.types import (
    Episode,
    ErrorRecord,
    Failed,
    Missing,
    Score,
    Step,
    Stop,
    Trajectory,
    Usage,
    VersionSpan,
)

anything = st.text(st.characters(), max_size=8)  # lone surrogates too: models write them
numbers = st.floats(allow_nan=False, allow_infinity=False)
graded = st.one_of(numbers, st.builds(Missing, anything), st.builds(Failed, anything))
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=8)
logprobs = st.lists(
    st.floats(max_value=0, allow_nan=False, allow_infinity=False, width=32), max_size=8
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | anything,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(anything, inner, max_size=2),
    max_leaves=4,
)
metadata = st.dictionaries(anything, documents, max_size=2)
steps = st.builds(
    Step,
    id=anything,
    parent=st.none() | anything,
    agent=anything,
    messages=st.lists(st.fixed_dictionaries({"role": anything, "content": documents})).map(tuple),
    tools=st.lists(metadata, max_size=1).map(tuple),
    reply=st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | anything}),
    context_ids=token_ids,
    output_ids=token_ids,
    logprobs=logprobs,
    versions=st.lists(
        st.builds(VersionSpan, st.integers(0), st.integers(0), st.integers(0)), max_size=2
    ).map(tuple),
    untrainable=st.none() | anything,
    usage=st.builds(Usage, st.integers(0, 2**31), st.integers(0, 2**31)),
    seconds=numbers,
)
trajectories = st.builds(
    Trajectory,
    name=anything,
    steps=st.lists(steps, max_size=2).map(tuple),
    reward=st.none() | graded,
    metadata=metadata,
)
episodes = st.builds(
    Episode,
    id=anything,
    task_id=anything,
    attempt=st.integers(0, 9),
    trajectories=st.lists(trajectories, max_size=2).map(tuple),
    output=anything,
    score=st.none() | st.builds(Score, graded, st.dictionaries(anything, graded, max_size=2)),
    stop=st.sampled_from(Stop),
    error=st.none() | st.builds(ErrorRecord, anything, anything, anything),
    metrics=st.dictionaries(anything, st.floats(allow_nan=False), max_size=2),
    metadata=metadata,
    started=numbers,
    seconds=numbers,
)
batch_rows = st.builds(
    BatchRow,
    step=st.integers(0, 2**40),
    version=st.integers(0, 2**40),
    sequences=st.lists(anything, max_size=3).map(tuple),
    credits=st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    groups=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    loss=metadata,
    optim=metadata,
)
