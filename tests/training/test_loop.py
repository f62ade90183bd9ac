"""The loop, end to end over the gateway, with a backend that really learns (in numpy)."""

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from rllm_core.algorithms.grpo import GRPO
from rllm_core.backend import ModelSpec, OptimParams
from rllm_core.engine import Rollouts, Sampling
from rllm_core.gateway import Gateway
from rllm_core.harness.functions import FunctionHarness
from rllm_core.scoring import Scorer
from rllm_core.store import RunStore
from rllm_core.testing.backend import TableBackend
from rllm_core.training.curriculum import Curriculum
from rllm_core.training.groups import GroupRunner
from rllm_core.training.loop import Loop, LoopSettings
from rllm_core.types import Task


async def answer(task, ctx):
    """One model call."""
    body = {"model": ctx.model, "messages": task.messages, "max_tokens": 1}
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{ctx.base_url}/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {ctx.api_key}"},
        ) as reply,
    ):
        return (await reply.json())["choices"][0]["message"]["content"]


def successor(task, episode):
    return episode.output == task.private["answer"]


TASKS = [Task.of(f"{d}=", id=str(d), private={"answer": str((d + 1) % 10)}) for d in range(10)]


@contextlib.asynccontextmanager
async def opened(
    directory: Path, *, steps=10, harness=answer, scorer=successor, backend=None, **settings
):
    """A loop over the ten tasks, its store new or resumed."""
    if (directory / "run.db").exists():
        store = RunStore.resume(directory)
    else:
        store = RunStore.create(
            directory, run_id="t", kind="train", name=None, config_toml="", plugins={}
        )
    gateway = Gateway()
    await gateway.start()
    loaded = await (backend or TableBackend()).model("policy", ModelSpec("table"))
    gateway.route("policy", await loaded.model.publish(0), renderer=loaded.renderer)
    log = []
    try:
        runner = GroupRunner(
            Rollouts(gateway, FunctionHarness.of(harness)(), deadline=5.0), Curriculum([(t, Scorer(scorer)) for t in TASKS]),
            store, 8, Sampling(temperature=1.0, max_tokens=1), asyncio.Semaphore(32), lambda *_: None,
        )  # fmt: skip

        async def validate(phase):
            log.append(phase)

        loop = Loop(
            loaded, GRPO(), runner, gateway, store,
            LoopSettings(steps, 4, settings.pop("max_staleness", 0), OptimParams(loaded.learning_rate), **settings),
            validate, lambda step, metrics: log.append((step, dict(metrics))),
        )  # fmt: skip
        yield loop, log
    finally:
        await gateway.close()
        store.close()


def rewards(log):
    return [entry[1]["reward"] for entry in log if isinstance(entry, tuple)]


@pytest.mark.parametrize("staleness", [0, 2])
async def test_reward_rises_and_weights_change(tmp_path, staleness):
    async with opened(tmp_path / "run", steps=60, max_staleness=staleness) as (loop, log):
        ended = await loop.run()
        table = loop.loaded.model.table
    assert ended == "all 60 steps are done"
    assert np.abs(table).max() > 0
    assert np.mean(rewards(log)[:5]) < 0.4
    assert np.mean(rewards(log)[-10:]) > 0.75
    assert log[0] == "before"
    assert log[-1] == "after"
    assert all(entry[1]["staleness"] <= staleness for entry in log if isinstance(entry, tuple))


async def test_the_tokens_trained_on_are_the_tokens_sampled_by_version(tmp_path):
    async with opened(tmp_path / "run", steps=5) as (loop, _):
        await loop.run()
        for row in loop.store.batches():
            for group in row.groups:
                for episode in loop.store.episodes("train", group):
                    (step,) = episode.steps
                    assert [span.version for span in step.versions] == [row.version]
                    assert step.untrainable is None
                    assert len(step.output_ids) == len(step.logprobs) == 1


async def test_ten_steps_equal_five_a_kill_and_five(tmp_path):
    async with opened(tmp_path / "whole", checkpoint_every=3) as (loop, whole_log):
        await loop.run()
        whole = loop.loaded.model.table
    async with opened(tmp_path / "cut", checkpoint_every=3) as (loop, first_log):

        def stop_at_five(step, metrics):
            first_log.append((step, dict(metrics)))
            if step == 4:
                raise KeyboardInterrupt

        loop.on_step = stop_at_five
        with pytest.raises(KeyboardInterrupt):
            await loop.run()
    async with opened(tmp_path / "cut", checkpoint_every=3) as (loop, second_log):
        await loop.restore()
        assert loop.admission.step == 5
        await loop.run()
        np.testing.assert_array_equal(loop.loaded.model.table, whole)
        episodes = [e.id for e in loop.store.episodes("train")]
    assert len(episodes) == len(set(episodes)) == 10 * 4 * 8
    assert rewards(first_log) + rewards(second_log) == rewards(whole_log)


async def test_one_failing_rollout_in_each_group_is_left_out_and_the_run_goes_on(tmp_path):
    async def fails_sometimes(task, ctx):
        if ctx.attempt == 0:
            raise OSError("the tool broke")
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return await answer(task, ctx)

    async with opened(tmp_path / "run", steps=2, harness=fails_sometimes) as (loop, log):
        loop.groups.rollouts = Rollouts(loop.gateway, loop.groups.rollouts.harness, deadline=0.5)
        await loop.run()
        trained = [name for row in loop.store.batches() for name in row.sequences]
    assert [m["errors"] for s, m in filter(lambda e: isinstance(e, tuple), log)] == [8, 8]
    assert len(trained) == 2 * 4 * 6
    assert not any(name.split("/")[0].endswith(("-0", "-1")) for name in trained)


async def test_a_run_without_signal_ends_with_a_sentence(tmp_path):
    async with opened(
        tmp_path / "run", steps=50, scorer=lambda task, episode: 1.0, idle_steps=3
    ) as (loop, log):
        ended = await loop.run()
    assert "nothing left to learn" in ended
    assert len(rewards(log)) == 3
