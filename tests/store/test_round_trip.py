"""What is put into a run is what comes back, in the order it was put."""

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllm_core.errors import ConfigError, StoreError
from rllm_core.statistics import Attempt
from rllm_core.store import BatchRow, RunStore
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
    metrics=st.dictionaries(anything, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
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

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fresh(directory):
    return RunStore.create(
        Path(directory) / "run", run_id="7f3a", kind="train", name=None, config_toml="", plugins={}
    )


@SETTINGS
@given(st.lists(episodes, max_size=4))
def test_episodes_come_back_as_they_were_put(put):
    put = [evolve(episode, id=f"{i}{episode.id}") for i, episode in enumerate(put)]
    with tempfile.TemporaryDirectory() as directory:
        store = fresh(directory)
        for i, episode in enumerate(put):
            store.add_episode("train", i, episode.attempt, episode)
        store.close()
        reader = RunStore.read(store.directory)
        assert list(reader.episodes()) == put
        assert list(reader.attempts("train")) == [Attempt.of(episode) for episode in put]
        assert reader.finished("train") == {
            (i, e.attempt) for i, e in enumerate(put) if e.error is None
        }
        reader.close()


@SETTINGS
@given(st.lists(batch_rows, max_size=4, unique_by=lambda row: row.step))
def test_batch_rows_come_back_as_they_were_put(put):
    async def write(store):
        for row in put:
            await store.add_batch(row.step, row)

    with tempfile.TemporaryDirectory() as directory:
        store = fresh(directory)
        asyncio.run(write(store))
        assert list(store.batches()) == sorted(put, key=lambda row: row.step)
        assert [row.step for row in store.batches(since=7)] == sorted(
            row.step for row in put if row.step >= 7
        )
        store.close()


async def test_a_later_attempt_replaces_a_failure_and_all_its_steps(tmp_path, create):
    store = create(tmp_path / "run")
    calls = tuple(Step(str(i), output_ids=[1, 2]) for i in range(3))
    failed = Episode("a1", "t", 0, (Trajectory(steps=calls),), error=ErrorRecord("infra", "died"))
    store.add_episode("eval", 0, 0, failed)
    await store.flush()
    assert store.finished("eval") == set()
    good = Episode("a2", "t", 0, (Trajectory(steps=calls[:1]),), score=Score(1))
    store.add_episode("eval", 0, 0, good)
    await store.flush()
    assert list(store.episodes("eval")) == [good]
    assert store.finished("eval") == {(0, 0)}
    with pytest.raises(ConfigError, match="no episode 'a1'"):
        store.episode("a1")


async def test_an_episode_is_found_by_the_beginning_of_its_id(tmp_path, create):
    store = create(tmp_path / "run")
    for i, name in enumerate(["ab", "abc", "b%"]):
        store.add_episode("eval", i, 0, Episode(name, "t"))
    await store.flush()
    assert store.episode("b").id == "b%"
    assert store.episode("ab").id == "ab"
    with pytest.raises(ConfigError, match="several episodes begin with 'a': ab, abc"):
        store.episode("a")
    with pytest.raises(ConfigError, match="no episode '%'"):
        store.episode("%")
    assert list(store.episode_ids()) == ["ab", "abc", "b%"]


async def test_two_episodes_of_one_id_are_an_error_and_nothing_later_is_written(tmp_path, create):
    store = create(tmp_path / "run")
    store.add_episode("eval", 0, 0, Episode("same", "t"))
    store.add_episode("eval", 1, 0, Episode("same", "u"))
    store.add_episode("eval", 2, 0, Episode("other", "v"))
    with pytest.raises(StoreError, match="UNIQUE"):
        await store.flush()
    with pytest.raises(StoreError, match="UNIQUE"):
        store.add_event("note", "")
    assert [e.task_id for e in store.episodes()] == ["t"]
    with pytest.raises(StoreError, match="UNIQUE"):
        store.close()


async def test_what_is_no_json_in_metadata_is_kept_readable(tmp_path, create):
    store = create(tmp_path / "run")
    odd = {"path": Path("/x"), "number": np.float32(0.5), "array": np.arange(2), "set": {2, 1}}
    store.add_episode("eval", 0, 0, Episode("e", "t", metadata=odd))
    await store.flush()
    assert store.episode("e").metadata == {
        "path": "/x",
        "number": 0.5,
        "array": [0, 1],
        "set": [1, 2],
    }


async def test_metrics_events_summary_and_info(tmp_path, create):
    directory = tmp_path / "deep" / "run"
    store = create(
        directory, name="päper", kind="train", config_toml="a = 1\n", plugins={"grpo": "core 0.1"}
    )
    store.add_metrics(2, {"reward": 0.5})
    store.add_metrics(1, {"reward": 0.25})
    store.add_metrics(2, {"reward": 0.75, "loss": float("inf")})
    store.add_metrics(0, {"accuracy": 0.1}, phase="before")
    store.add_event("retry", "the box died \ud800", {"task": "t"})
    store.set_summary({"accuracy": 0.5})
    await store.flush()
    assert store.metrics() == [(1, {"reward": 0.25}), (2, {"reward": 0.75, "loss": float("inf")})]
    assert store.metrics("before") == [(0, {"accuracy": 0.1})]
    (event,) = store.events()
    assert (event.kind, event.message, event.data) == ("retry", "the box died ?", {"task": "t"})
    assert store.summary() == {"accuracy": 0.5}
    info = store.info
    assert (info.id, info.kind, info.name, info.status) == ("7f3a", "train", "päper", "running")
    assert (info.config_toml, info.plugins) == ("a = 1\n", {"grpo": "core 0.1"})
    assert directory.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="one of running, finished"):
        store.set_status("done")


async def test_a_batch_row_cannot_change_but_may_be_put_again(tmp_path, create):
    store = create(tmp_path / "run")
    row = BatchRow(3, 2, ("a/policy/0", "b/policy/0"), [0.1, -0.1], (0, 0), {"clip": 0.2}, {})
    await store.add_batch(3, row)
    await store.add_batch(3, row)
    with pytest.raises(ValueError, match="of step 3, not 4"):
        await store.add_batch(4, row)
    with pytest.raises(StoreError, match="step 3 has been trained on another batch"):
        await store.add_batch(3, evolve(row, credits=[0.2, -0.2]))
    with pytest.raises(StoreError):
        store.close()


async def test_an_iterator_left_half_way_keeps_nothing_open(tmp_path, create):
    store = create(tmp_path / "run")
    for i in range(200):
        store.add_episode("eval", i, 0, Episode(f"e{i}", "t"))
    await store.flush()
    iterator = store.episodes()
    assert next(iterator).id == "e0"
    store.add_episode("eval", 200, 0, Episode("e200", "t"))
    await store.flush()
    assert [e.id for e in iterator] == [f"e{i}" for i in range(1, 201)]
    assert [e.id for e in store.episodes(group=7)] == ["e7"]


async def test_only_complete_checkpoints_are_listed(tmp_path, create):
    store = create(tmp_path / "run")
    for step in (10, 20, 30):
        path = store.checkpoint_dir(step)
        assert not path.exists()
        path.mkdir()
        (path / "weights").write_text("w")
        if step < 30:
            store.add_checkpoint(step, path)
    await store.flush()
    assert [step for step, _ in store.checkpoints()] == [10, 20]
    with pytest.raises(StoreError, match="step 20 has been saved"):
        store.checkpoint_dir(20)
    with pytest.raises(StoreError, match="step 40 is not there"):
        store.add_checkpoint(40, store.checkpoint_dir(40))
    store.prune(keep=1)
    await store.flush()
    assert [step for step, _ in store.checkpoints()] == [20]
    assert not (store.directory / "checkpoints" / "step-000010").exists()
    store.close()
    resumed = RunStore.resume(store.directory)
    assert [path.name for path in (store.directory / "checkpoints").iterdir()] == ["step-000020"]
    resumed.close()


def test_tokens_are_counted_by_the_server_or_by_ids():
    told = Step("a", usage=Usage(10, 5), output_ids=[1])
    counted = Step("b", output_ids=[1, 2, 3])
    attempt = Attempt.of(Episode("e", "t", trajectories=(Trajectory(steps=(told, counted)),)))
    assert (attempt.calls, attempt.prompt_tokens, attempt.completion_tokens) == (2, 10, 8)
