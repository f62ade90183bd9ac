"""Whatever agents and scorers raise, the run goes on and says what it was."""

import asyncio
import time

import pytest

import rllm
from rllm_core.algorithms.grpo import GRPO
from rllm_core.testing.wire_server import WireServer
from rllm_core.types import Episode, Score, Trajectory


class Own(BaseException):
    pass


class MuteError(Exception):
    def __str__(self):
        raise OSError("no words")


RAISED = [
    SystemExit(0),
    SystemExit(3),
    asyncio.CancelledError(),
    GeneratorExit(),
    Own("x"),
    MuteError(),
]


def _run(agent, scorer="exact", **options):
    options = {"run.max_error_share": 1.0, **options}

    async def go():
        async with WireServer(["4"]) as server:
            return await asyncio.to_thread(
                rllm.evaluate, agent, "arithmetic", scorer=scorer, model="m",
                base_url=server.base_url, max=2, quiet=True, options=options,
            )  # fmt: skip

    return asyncio.run(go())


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path))


@pytest.mark.parametrize("error", RAISED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("where", ["sync", "async", "scorer"])
def test_an_exception_for_the_process_is_the_failure_of_one_rollout(error, where):
    def sync(task, ctx):
        raise error

    async def coroutine(task, ctx):
        raise error

    def scorer(task, episode):
        raise error

    def fine(task, ctx):
        return "4"

    finished = (
        _run(fine, scorer) if where == "scorer" else _run(sync if where == "sync" else coroutine)
    )
    summary = finished.results["arithmetic"]
    assert summary.errors == {"score" if where == "scorer" else "harness": 2}
    assert summary.graded == 0


def test_an_agent_that_blocks_the_loop_is_late_all_the_same():
    async def spin(task, ctx):
        time.sleep(0.6)  # noqa: ASYNC251 - the offence itself
        return "4"

    finished = _run(spin, **{"run.deadline": 0.5})
    assert finished.results["arithmetic"].errors == {"timeout": 2}


def test_a_scorers_reward_for_an_agent_by_name_is_the_one_that_is_compared():
    def episode(number, solver):
        score = Score(0.5, trajectories={"solver": solver})
        agents = (Trajectory("solver"), Trajectory("judge", reward=0.25), Trajectory("third"))
        return Episode(f"e{number}", "t", trajectories=agents, score=score)

    groups = GRPO().group([episode(0, 1.0), episode(1, 0.0)])
    rewards = {g.name: [m.reward for m in g.members] for g in groups}
    assert rewards == {"solver": [1.0, 0.0], "judge": [0.25, 0.25], "third": [0.5, 0.5]}
