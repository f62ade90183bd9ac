"""A scorer calls the judge; the agent's key does not open it."""

import aiohttp
import pytest

import rllm
from rllm_core.testing.wire_server import WireServer

SEEN = []


async def ask(endpoint, model, text):
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.api_key}"}) as http,
        http.post(
            f"{endpoint.base_url}/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": text}]},
        ) as reply,
    ):
        return reply.status, await reply.json()


async def curious(task, ctx):
    """An agent that would like to know what the judge thinks."""
    SEEN.append(await ask(ctx.agent("policy"), "judge", "is it 4?"))
    _, body = await ask(ctx.agent("policy"), ctx.model, task.text)
    return body["choices"][0]["message"]["content"]


async def judged(task, episode, ctx):
    _, body = await ask(ctx.models["judge"], "judge", f"{task.text} {episode.output}")
    return body["choices"][0]["message"]["content"] == "yes"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path))


def _evaluate(policy, judge):
    """In a thread of its own: the servers live on this test's loop."""
    return rllm.evaluate(
        curious,
        "arithmetic",
        scorer=judged,
        model="policy-model",
        base_url=policy.base_url,
        max=3,
        quiet=True,
        options={
            "models.judge.name": "judge-model",
            "models.judge.base_url": judge.base_url,
            "models.judge.temperature": 0.0,
        },
    )


async def test_a_scorer_asks_the_judge_and_an_agent_cannot(home):
    import asyncio

    SEEN.clear()
    async with WireServer(["4"]) as policy, WireServer(["yes", "no", "yes"]) as judge:
        finished = await asyncio.to_thread(_evaluate, policy, judge)
    assert finished.results["arithmetic"].accuracy.mean == pytest.approx(2 / 3)
    assert [body["model"] for _, body in judge.requests] == ["judge-model"] * 3
    assert all(body["temperature"] == 0.0 for _, body in judge.requests)
    assert all(body["model"] == "policy-model" for _, body in policy.requests)
    refused = [status for status, _ in SEEN]
    assert refused == [403] * 3, SEEN[0]
