"""Training the built-in model through gateway, react, local backend and grpo, as users do it."""

import asyncio
import json
import os
import signal
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from attrs import define

from rllm_core.cli.frame import run_command
from rllm_core.errors import ConfigError
from rllm_core.store import RunStore
from rllm_core.training.sequences import sequences
from rllm_core.training.update import replay
from rllm_core.upstream import TokenPrompt

pytest.importorskip("rllm_backend_local", reason="rllm-backend-local is not installed")
pytest.importorskip("rllm_benchmark_arithmetic", reason="rllm-benchmark-arithmetic is missing")

pytestmark = pytest.mark.timeout(400)

STEPS, GROUPS, SIZE = 63, 8, 8
WORDS = (
    "train", "arithmetic", "benchmark.level=copy1", "--model", "tiny", "--max-tokens", "1",
    "--learning-rate", "0.005", "--group-size", str(SIZE), f"run.groups_per_step={GROUPS}",
    "run.checkpoint_every=7", "run.keep_checkpoints=99",
    "backend.threads=1", "backend.dtype=fp32",
)  # fmt: skip


@define
class Whole:
    """A run that nothing interrupted."""

    home: Path
    directory: Path
    reader: RunStore

    @property
    def rewards(self):
        return [values["reward"] for _, values in self.reader.metrics()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The trained run, under a home of its own with the id `whole`."""
    home = tmp_path_factory.mktemp("home")
    directory = home / "runs" / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLLM_HOME", str(home))
        patch.setenv("OMP_NUM_THREADS", "1")
        assert run_command([*WORDS, "--steps", str(STEPS), "--run-dir", str(directory)]) == 0
    reader = RunStore.read(directory)
    yield Whole(home, directory, reader)
    reader.close()


def weights(directory):
    from safetensors.numpy import load_file

    (file,) = directory.glob("*.safetensors")
    return load_file(file)


def test_reward_rises(whole):
    assert len(whole.rewards) == STEPS
    assert np.mean(whole.rewards[-10:]) >= np.mean(whole.rewards[:5]) + 0.4


def test_the_exported_weights_are_the_last(whole):
    exported = weights(whole.directory / "export")
    last = weights(whole.directory / "checkpoints" / f"step-{STEPS:06d}")
    for name, value in exported.items():
        np.testing.assert_array_equal(value, last[name])


def test_a_trained_run_is_a_model(whole, rllm, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(whole.home))
    words = ("benchmark.level=copy1", "--max-tokens", 1, "--temperature", 0, "backend.threads=1")
    ended = rllm("eval", "arithmetic", "--model", "whole", *words, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)["results"]["arithmetic"]["accuracy"]["mean"]
    trained = [float(a.graded) for a in whole.reader.attempts("after")]
    assert found == np.mean(trained)
    assert found >= 0.5


def test_each_batch_holds_exactly_the_tokens_that_its_version_sampled(whole):
    from rllm_core.algorithms.grpo import GRPO

    trained_on = 0
    for row in whole.reader.batches():
        members = {k: list(whole.reader.episodes("train", k)) for k in row.groups}
        batch = replay(row, members, GRPO()).batch
        sampled = {s.name: (e, s) for es in members.values() for e in es for s in sequences(e)}
        for name, span in zip(batch.names_S, batch.spans(), strict=True):
            episode, sequence = sampled[name]
            (step,) = episode.steps
            ids = step.context_ids + step.output_ids
            assert batch.ids_T[span].tolist() == ids.tolist() == sequence.ids.tolist()
            target = batch.target_T[span]
            assert batch.ids_T[span][target].tolist() == step.output_ids.tolist()
            assert batch.logprobs_T[span][target].tolist() == step.logprobs.tolist()
            assert [(v.start, v.end, v.version) for v in step.versions] == [
                (0, len(step.output_ids), row.version)
            ]
            trained_on += int(target.sum())
        assert (batch.version_S2 == row.version).all()
    assert trained_on > 1000


async def test_each_version_has_other_weights_which_give_the_recorded_logprobs(whole, tmp_path):
    from rllm_backend_local import LocalBackend, Options

    from rllm_core.backend import ModelSpec

    backend = LocalBackend(Options(threads=1, call_timeout=60.0))
    await backend.start()
    try:
        model = (await backend.model("policy", ModelSpec("tiny"))).model
        await model.export(tmp_path / "first")
        checkpoints = dict(whole.reader.checkpoints())
        rows = {row.version: row for row in whole.reader.batches()}
        for version in (0, 7, STEPS - 7):
            if version:
                await model.load(checkpoints[version])
            upstream = await model.publish(version)
            episodes = [e for k in rows[version].groups for e in whole.reader.episodes("train", k)]
            differ = await asyncio.gather(*(rescored(upstream, e) for e in episodes))
            assert max(differ) < 1e-4, version
    finally:
        await backend.close()
    first, exported = weights(tmp_path / "first"), weights(whole.directory / "export")
    assert first.keys() == exported.keys()
    assert not any(np.array_equal(first[k], exported[k]) for k in first)


async def rescored(upstream, episode):
    """The largest difference between the logprobs recorded and those of a scoring forward."""
    (step,) = episode.steps
    scored = await upstream.score(TokenPrompt(array("i", step.context_ids + step.output_ids)))
    pairs = zip(scored[len(step.context_ids) :], step.logprobs, strict=True)
    return max(abs(a - b) for a, b in pairs)


def steps_begun(directory):
    try:
        reader = RunStore.read(directory)
    except ConfigError:  # it has not begun
        return 0
    steps = sum(1 for _ in reader.batches())
    reader.close()
    return steps


def worker_after(process, directory, steps):
    """Wait until so many steps have begun; the process id of the backend's worker."""
    give_up = time.monotonic() + 150
    while steps_begun(directory) < steps:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


def test_killed_half_way_and_resumed_it_is_the_same_run_to_the_bit(whole, start, rllm, read, home):
    """First the worker dies, then the whole process; the steps are those of the longer run."""
    steps, directory = 14, home / "runs" / "cut"
    process = start(*WORDS, "--steps", steps, "--run-dir", directory)
    os.kill(worker_after(process, directory, 4), signal.SIGKILL)
    process.ended(60).refused("worker was killed", "--resume", code=1)
    assert read(directory).info.status == "failed"

    process = start("train", "--resume", "cut")
    worker = worker_after(process, directory, 10)
    process.kill()
    process.communicate()
    assert read(directory).info.status == "killed"
    kept = {e.id: e for e in read(directory).episodes("train") if e.error is None}
    assert 10 * GROUPS * SIZE <= len(kept) < steps * GROUPS * SIZE
    give_up = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < give_up, "the worker outlives its process"
        time.sleep(0.05)

    resumed = rllm("train", "--resume", directory)
    assert resumed.code == 0, resumed.err
    reader = read(directory)
    episodes = {e.id: e for e in reader.episodes("train")}
    ids = [e.id for e in reader.episodes("train")]
    assert len(ids) == len(set(ids)) == steps * GROUPS * SIZE
    assert all(episodes[name] == old for name, old in kept.items())
    assert [v["reward"] for _, v in reader.metrics()] == whole.rewards[:steps]
    uninterrupted = weights(whole.directory / "checkpoints" / f"step-{steps:06d}")
    exported = weights(directory / "export")
    assert exported.keys() <= uninterrupted.keys()
    for name, value in exported.items():
        np.testing.assert_array_equal(value, uninterrupted[name])
