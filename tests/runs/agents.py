"""Agents and evaluators that the whole-run tests name by reference."""

import json
import sys
import threading
import time
import urllib.request

import aiohttp

import rllm
from rllm_core.types import Episode, Trajectory


async def _ask(task, ctx):
    body = {"model": ctx.model, "messages": task.messages}
    headers = {"Authorization": f"Bearer {ctx.api_key}"}
    url = f"{ctx.base_url}/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as got:
        return (await got.json())["choices"][0]["message"]["content"]


@rllm.rollout
async def says(task, ctx):
    """Async, the answer as text."""
    return await _ask(task, ctx)


@rllm.rollout
def says_sync(task, ctx):
    """The same with a blocking client."""
    request = urllib.request.Request(
        f"{ctx.base_url}/chat/completions",
        json.dumps({"model": ctx.model, "messages": task.messages}).encode(),
        {"Authorization": f"Bearer {ctx.api_key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as got:
        return json.load(got)["choices"][0]["message"]["content"]


@rllm.rollout
async def says_nothing(task, ctx):
    """None: the last assistant text is the answer."""
    await _ask(task, ctx)


@rllm.rollout
async def trajectory(task, ctx):
    """A trajectory, which only names what the gateway has recorded."""
    await _ask(task, ctx)
    return Trajectory("policy", metadata={"kind": "trajectory"})


@rllm.rollout
async def episode(task, ctx):
    """An episode, likewise."""
    answer = await _ask(task, ctx)
    return Episode("mine", task.id, output=answer, metrics={"asked": 1.0})


def hangs(task, ctx):
    """Never ends and cannot be cancelled."""
    threading.Event().wait()


def one_fails(task, ctx):
    """One of the tasks is too much for this agent."""
    if task.messages[-1]["content"].startswith("3"):
        raise OSError("the tool broke")
    return says_sync(task, ctx)


def exact(task, episode):
    """The answer and nothing else."""
    return episode.output.strip() == task.private["answer"]


async def exact_async(task, episode):
    """The same, async."""
    return exact(task, episode)


def never_scores(task, episode):
    """A scorer that hangs where nothing can interrupt it."""
    while True:
        time.sleep(3600)


@rllm.rollout
async def closes_output(task, ctx):
    """Prints, closes the standard streams and puts nothing in their place."""
    answer = await _ask(task, ctx)
    if sys.stdout is not None:
        print("printed by the agent")
        sys.stdout.close()
        sys.stderr.close()
        sys.stdout = sys.stderr = None
    return answer
