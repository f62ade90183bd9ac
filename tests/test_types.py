"""The types survive a JSON round trip without loss, and refuse what is no score."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm_core.serialize import from_json, to_json
from rllm_core.types import (
    Episode,
    ErrorRecord,
    Failed,
    Missing,
    Score,
    Step,
    Stop,
    Task,
    Tool,
    Trajectory,
    VersionSpan,
    as_graded,
)

graded = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(Missing, st.text()),
    st.builds(Failed, st.text()),
)
steps = st.builds(
    Step,
    id=st.text(),
    parent=st.none() | st.text(),
    messages=st.lists(st.fixed_dictionaries({"role": st.text(), "content": st.text()})).map(tuple),
    reply=st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | st.text()}),
    context_ids=st.lists(st.integers(0, 2**31 - 1)),
    output_ids=st.lists(st.integers(0, 2**31 - 1)),
    logprobs=st.lists(st.floats(max_value=0, allow_nan=False, allow_infinity=False, width=32)),
    versions=st.lists(st.builds(VersionSpan, st.integers(0), st.integers(0), st.integers(0))).map(
        tuple
    ),
    untrainable=st.none() | st.text(),
)
episodes = st.builds(
    Episode,
    id=st.text(),
    task_id=st.text(),
    trajectories=st.lists(
        st.builds(
            Trajectory,
            name=st.text(),
            steps=st.lists(steps, max_size=2).map(tuple),
            reward=st.none() | graded,
        ),
        max_size=2,
    ).map(tuple),
    score=st.none() | st.builds(Score, graded, st.dictionaries(st.text(), graded, max_size=2)),
    stop=st.sampled_from(Stop),
    error=st.none() | st.builds(ErrorRecord, st.text(), st.text()),
    metrics=st.dictionaries(
        st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=2
    ),
)


@given(episodes)
def test_an_episode_survives_json(episode):
    assert from_json(Episode, json.loads(json.dumps(to_json(episode)))) == episode


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.lists(st.text())))
def test_a_task_survives_json(text, private):
    tool = Tool("add", "adds", {"type": "object"}, "math:fsum")
    for prompt in (text, ({"role": "user", "content": text},)):
        task = Task.of(prompt, id="x", private=private, tools=[tool])
        assert from_json(Task, json.loads(json.dumps(to_json(task)))) == task
        assert task.public().private == {}
        assert task.messages == [{"role": "user", "content": text}]


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", [1]])
def test_what_is_no_score_is_refused(value):
    with pytest.raises(ValueError, match="a score must be"):
        as_graded(value)


def test_an_unscored_episode_is_missing_and_never_zero():
    episode = Episode("e", "t", error=ErrorRecord("infra", "the box died"))
    assert episode.reward == Missing("the box died")


@pytest.mark.parametrize("bad", [math.nan, "1", None, [1], 10**400])
def test_what_could_not_be_read_back_is_refused_when_it_is_made(bad):
    with pytest.raises((ValueError, TypeError)):
        Score(1.0, parts={"format": bad})
    with pytest.raises((ValueError, TypeError)):
        Score(1.0, trajectories={"policy": bad})
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Episode("e", "t", metrics={"turns": bad})
    if bad is not None:  # None: this agent has no reward of its own
        with pytest.raises((ValueError, TypeError)):
            Trajectory(reward=bad)
