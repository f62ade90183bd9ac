"""react against a scripted server that speaks Chat Completions over real HTTP."""

import asyncio
import json
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rllm_core.errors import ConfigError, HarnessError, ModelError, RolloutTimeout
from rllm_core.harness import Endpoint, RolloutContext
from rllm_core.harness.react import React, rllm_harness
from rllm_core.testing import HarnessConformance
from rllm_core.types import Stop, Task, Tool

ADD = Tool("add", "Add.", {"type": "object"}, function=f"{__name__}:add")


def add(a, b):
    return a + b


async def slow(**kwargs):
    await asyncio.sleep(30)


def fails(**kwargs):
    raise RuntimeError("the tool's own trouble")


@pytest.fixture
async def model():
    """`script(*replies)` starts a server that gives these replies; it keeps the requests."""
    servers = []

    async def script(*replies):
        queue, seen = list(replies), []

        async def answer(request):
            seen.append((dict(request.headers), await request.json()))
            reply = queue.pop(0)
            if callable(reply):
                return await reply()
            return web.json_response({"choices": [{"message": reply, "finish_reason": "stop"}]})

        app = web.Application()
        app.router.add_post("/s/1/v1/chat/completions", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        url = str(server.make_url("/s/1/v1"))
        return url, seen

    yield script
    for server in servers:
        await server.close()


def context(url, seconds=20.0):
    endpoint = Endpoint(url, "secret", "policy")
    return RolloutContext(lambda name: endpoint, deadline=time.monotonic() + seconds)


def say(text):
    return {"role": "assistant", "content": text}


def call(arguments, name="add", key="c1"):
    function = {"name": name, "arguments": arguments}
    calls = [{"id": key, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def task(*tools):
    return Task.of("What is 2 + 3?", id="t", tools=tools)


async def test_one_call_without_tools(model):
    url, seen = await model(say("5"))
    agent = React(React.Options(system_prompt="Be brief."))
    outcome = await agent.run(task(), context(url))
    assert (outcome.output, outcome.stop, outcome.metrics) == ("5", Stop.DONE, {"turns": 1.0})
    headers, body = seen[0]
    assert headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "policy",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2 + 3?"},
        ],
    }


async def test_the_tool_loop(model):
    first = call(json.dumps({"a": 2, "b": 3}))
    url, seen = await model(first, say("It is 5."))
    outcome = await React().run(task(ADD), context(url))
    assert outcome.output == "It is 5."
    assert seen[0][1]["tools"] == [ADD.spec()]
    asked, result = seen[1][1]["messages"][1:]
    assert asked == first
    assert result == {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "5"}


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (call("{}", name="subtract"), "no tool 'subtract'"),
        (call("{not json"), "no valid JSON"),
        (call("[1]"), "must be a JSON object"),
        (call('{"a": 1}'), "TypeError"),
        (call("{}", name="fails"), "RuntimeError: the tool's own trouble"),
        (call("{}", name="slow"), "took more than 0.1 s"),
    ],
)
async def test_a_tools_mistake_is_its_result(model, reply, said):
    tools = (ADD, *(Tool(n, n, {}, function=f"{__name__}:{n}") for n in ("fails", "slow")))
    url, seen = await model(reply, say("sorry"))
    agent = React(React.Options(max_tool_seconds=0.1))
    outcome = await agent.run(task(*tools), context(url))
    assert outcome.output == "sorry"
    assert said in seen[1][1]["messages"][-1]["content"]


async def test_it_stops_at_max_turns(model):
    url, seen = await model(*[call('{"a": 1, "b": 1}')] * 5)
    outcome = await React(React.Options(max_turns=2)).run(task(ADD), context(url))
    assert outcome.stop is Stop.MAX_TURNS
    assert len(seen) == 2


async def test_the_deadline_ends_a_call(model):
    async def hang():
        await asyncio.sleep(20)

    url, _ = await model(hang)
    with pytest.raises(RolloutTimeout):
        await React().run(task(), context(url, seconds=0.1))
    with pytest.raises(RolloutTimeout):
        await React().run(task(), context(url, seconds=-1))


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, '{"error": {"message": "out of memory"}}', "500: out of memory"),
        (429, "slow down", "429: slow down"),
        (200, "<html>", "no chat completion"),
        (200, '{"choices": []}', "no chat completion"),
    ],
)
async def test_a_servers_failure_is_a_model_error(model, status, body, said):
    async def answer():
        return web.Response(status=status, text=body)

    url, _ = await model(answer)
    with pytest.raises(ModelError, match=said):
        await React().run(task(), context(url))


async def test_a_server_that_is_down_is_a_model_error():
    with pytest.raises(ModelError, match="no answer from"):
        await React().run(task(), context("http://127.0.0.1:9/v1"))


async def test_tools_without_functions_are_refused():
    bare = task(Tool("add", "Add.", {}))
    with pytest.raises(ConfigError, match="no function to run"):
        React().check(bare)
    with pytest.raises(HarnessError, match="no function to run"):
        await React().run(bare, context("http://127.0.0.1:9/v1"))


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_turns"):
        React.Options(max_turns=0)
    with pytest.raises(ValueError, match="max_tool_seconds"):
        React.Options(max_tool_seconds=0)
    assert rllm_harness() is React


class TestReact(HarnessConformance):
    harness = React
