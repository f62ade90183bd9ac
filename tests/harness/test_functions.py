"""Rollout functions: what they may be, what they may return, and what happens to their threads."""

import asyncio
import functools
import threading

import pytest
from openai import AsyncOpenAI, OpenAI

import rllm
from rllm_core.engine.jobs import Job
from rllm_core.engine.rollout import Rollouts
from rllm_core.errors import ConfigError, HarnessError
from rllm_core.harness import Endpoint, Harness, HarnessCapabilities, Note, Outcome, RolloutContext
from rllm_core.harness.functions import FunctionHarness, harness_class, to_outcome
from rllm_core.scoring import Scorer
from rllm_core.testing import HarnessConformance
from rllm_core.types import Episode, Missing, Score, Stop, Task, Trajectory

TASK = Task.of("2 + 2?", id="t")


def context():
    return RolloutContext(lambda name: Endpoint("http://127.0.0.1:9/v1", "key", "policy"))


async def run(function):
    return await FunctionHarness.of(function)().run(TASK, context())


async def test_sync_and_async_functions_return_text():
    @rllm.rollout
    def sync(task, ctx):
        return f"{task.text} {ctx.model} {threading.current_thread() is threading.main_thread()}"

    @rllm.rollout
    async def asynchronous(task, ctx):
        return task.id

    assert (await run(sync)).output == "2 + 2? policy False"
    assert (await run(asynchronous)).output == "t"


async def test_none_leaves_the_output_to_the_gateway():
    assert await run(lambda task, ctx: None) == Outcome()


async def test_partials_and_callable_objects_are_functions():
    class Agent:
        async def __call__(self, task, ctx):
            return "object"

    async def three(extra, task, ctx):
        return extra

    assert (await run(Agent())).output == "object"
    assert (await run(functools.partial(three, "partial"))).output == "partial"


async def test_a_sync_function_may_hand_back_a_coroutine():
    async def inner():
        return "later"

    assert (await run(lambda task, ctx: inner())).output == "later"


async def test_a_trajectory_keeps_its_name_and_reward():
    outcome = await run(lambda task, ctx: Trajectory("solver", reward=0.5, metadata={"a": 1}))
    assert outcome.notes == (Note("solver", 0.5, {"a": 1}),)
    assert outcome.output is None


def test_an_episode_keeps_names_rewards_metrics_and_metadata():
    episode = Episode(
        "e",
        "t",
        trajectories=(Trajectory("solver", reward=1.0), Trajectory("judge")),
        output="four",
        metrics={"rounds": 2.0},
        metadata={"note": "x"},
        stop=Stop.MAX_TURNS,
    )
    outcome = to_outcome(episode)
    assert outcome.output == "four"
    assert [(n.name, n.reward) for n in outcome.notes] == [("solver", 1.0), ("judge", None)]
    assert outcome.metrics == {"rounds": 2.0}
    assert outcome.metadata == {"note": "x"}
    assert outcome.stop is Stop.MAX_TURNS


def test_an_episodes_own_score_becomes_its_trajectories_rewards():
    score = Score(0.25, trajectories={"judge": Missing("no judge")})
    episode = Episode(
        "e", "t", trajectories=(Trajectory("solver"), Trajectory("judge")), score=score
    )
    assert [n.reward for n in to_outcome(episode).notes] == [0.25, Missing("no judge")]
    assert to_outcome(Episode("e", "t", score=score)).notes == (Note("policy", 0.25),)


async def test_another_return_type_names_function_type_and_what_is_allowed():
    def numeric(task, ctx):
        return 42

    with pytest.raises(HarnessError) as caught:
        await run(numeric)
    for part in ("numeric", "int", "42", "str, Trajectory, Episode"):
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_exceptions_pass_through(kind):
    def sync(task, ctx):
        raise LookupError("mine")

    async def asynchronous(task, ctx):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await run(sync if kind == "sync" else asynchronous)


async def test_stop_iteration_of_a_sync_function_does_not_hang():
    def empty(task, ctx):
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(run(empty), 5)


async def test_a_function_past_its_deadline_is_abandoned_and_counted():
    release = threading.Event()
    harness = FunctionHarness(function=lambda task, ctx: release.wait(20) and "late")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(harness.run(TASK, context()), 0.05)
    assert harness.abandoned == 1
    release.set()


async def test_hanging_functions_do_not_hold_up_others():
    release = threading.Event()

    def slow(task, ctx):
        return "slow" if release.wait(20) else "never"

    hanging = [asyncio.ensure_future(run(slow)) for _ in range(40)]
    assert (await asyncio.wait_for(run(lambda task, ctx: "quick"), 5)).output == "quick"
    release.set()
    assert {o.output for o in await asyncio.gather(*hanging)} == {"slow"}


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda task: None, lambda a, b, c: None, lambda a, b, *, c: None, 7],
)
def test_wrong_signatures_are_refused_at_once(function):
    with pytest.raises(ConfigError):
        rllm.rollout(function)


def test_harness_class_takes_functions_classes_and_nothing_else():
    class Mine(Harness):
        pass

    assert harness_class(Mine) is Mine
    made = harness_class(lambda task, ctx: None)
    assert issubclass(made, FunctionHarness)
    assert isinstance(made(made.Options()), Harness)
    with pytest.raises(ConfigError, match="no Harness"):
        harness_class(dict)
    with pytest.raises(ConfigError, match="cannot be called"):
        harness_class("rllm_core.harness.functions:ALLOWED")


def test_importing_the_facade_is_cheap():
    import subprocess
    import sys

    code = "import sys, rllm; print([m for m in ('asyncio','numpy','cattrs','aiohttp','logging') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.strip() == "[]"


def one_call(task, ctx):
    """A whole agent in the official client, sync."""
    with OpenAI(base_url=ctx.base_url, api_key=ctx.api_key, max_retries=0) as client:
        answer = client.chat.completions.create(model=ctx.model, messages=task.messages)
    return answer.choices[0].message.content


async def one_async_call(task, ctx):
    """The same, async; the gateway's last text is the output."""
    async with AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key, max_retries=0) as client:
        await client.chat.completions.create(model=ctx.model, messages=task.messages)


class NoTools(FunctionHarness):
    capabilities = HarnessCapabilities()


class TestSyncFunction(HarnessConformance):
    harness = NoTools.of(one_call)


class TestAsyncFunction(HarnessConformance):
    harness = NoTools.of(one_async_call)


async def test_through_the_engine_notes_stop_and_metadata_reach_the_episode():
    """The episode has what the function said, and the calls that the gateway saw."""

    async def solver(task, ctx):
        text = await one_async_call(task, ctx)
        noted = Trajectory("policy", reward=0.75, metadata={"sure": True})
        return Episode("", "", trajectories=(noted,), stop=Stop.MAX_TURNS, metadata={"text": text})

    def scorer(task, episode):
        return float(episode.output == "It is 4.")

    async with HarnessConformance().gateway(["It is 4."]) as gateway:
        rollouts = Rollouts(gateway, FunctionHarness.of(solver)(), deadline=20)
        episode = await rollouts.run(Job("eval", 0, 0, TASK, Scorer(scorer)))
    assert episode.error is None
    assert episode.reward == 1.0
    assert (episode.stop, episode.metadata["text"]) == (Stop.MAX_TURNS, None)
    trajectory = episode.trajectory("policy")
    assert (trajectory.reward, trajectory.metadata) == (0.75, {"sure": True})
    assert len(trajectory.steps) == 1


def test_a_thread_that_outlives_the_loop_ends_quietly():
    release = threading.Event()

    def outlives(task, ctx):
        release.wait(20)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run(outlives), 0.05)

    asyncio.run(main())
    (thread,) = (t for t in threading.enumerate() if t.name == "rllm-outlives")
    release.set()
    thread.join(5)
    assert not thread.is_alive()
