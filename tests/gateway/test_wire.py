"""Calls to an OpenAI-compatible server: passed on, recorded, and failing in the agent's dialect."""

import json
import time

import openai
import pytest

from rllm_core.gateway import Gateway
from rllm_core.testing.wire_server import WireReply, WireServer
from rllm_core.types import Stop
from rllm_core.upstream import WireUpstream

USER = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def wire(server: WireServer, **options) -> WireUpstream:
    return WireUpstream(server.base_url, "big-model", api_key="sk-upstream", **options)


async def ask(client, messages=USER, *, stream=False, **options):
    """One call; a stream is gathered into (text, tool calls, finish)."""
    got = await client.chat.completions.create(
        model="policy", messages=messages, stream=stream, **options
    )
    if not stream:
        message = got.choices[0].message
        calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        return message.content or "", calls, got.choices[0].finish_reason
    text, calls, finish = "", {}, None
    async for chunk in got:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                old = calls.get(call.index, (None, None, ""))
                calls[call.index] = (
                    call.id or old[0],
                    call.function.name or old[1],
                    old[2] + (call.function.arguments or ""),
                )
    return text, list(calls.values()), finish


@pytest.mark.parametrize("stream", [False, True])
async def test_passes_on_and_records(gateway: Gateway, client_of, stream):
    reply = WireReply("I will add", tool_calls=[("add", '{"a": 1}'), ("add", '{"a": 2}')])
    async with WireServer([reply, "done and done"]) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1", sampling={"temperature": 0.7, "max_tokens": 40})
        client = client_of(session.endpoint())
        text, calls, finish = await ask(
            client, stream=stream, tools=TOOLS, temperature=0, max_tokens=4000
        )
        assert (text, finish) == ("I will add", "tool_calls")
        assert [c[1:] for c in calls] == [("add", '{"a": 1}'), ("add", '{"a": 2}')]
        history = [
            *USER,
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                    for i, n, a in calls
                ],
            },
            *({"role": "tool", "tool_call_id": i, "content": "3"} for i, _, _ in calls),
        ]
        assert (await ask(client, history, stream=stream, tools=TOOLS))[0] == "done and done"
        headers, body = server.requests[0]
        assert headers["Authorization"] == "Bearer sk-upstream"
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("big-model", 0.7, 40)
        assert "return_token_ids" not in body
        assert "logprobs" not in body
        record = await session.close()
    first, second = record.steps
    assert second.parent == first.id
    assert len(second.messages) == 2
    assert {s.untrainable for s in record.steps} == {"server gave no token ids"}
    assert first.usage.completion_tokens > 0
    assert first.model == "big-model"
    assert not record.errors


@pytest.mark.parametrize("stream", [False, True])
async def test_ids_are_recorded_where_they_extend_the_branch(gateway, client_of, stream):
    replies = ["one", "two", WireReply("three", prompt_shift=1)]
    async with WireServer(replies) as server:
        gateway.route("policy", wire(server, token_ids=True))
        session = gateway.open("s1")
        client = client_of(session.endpoint())
        messages = [*USER]
        for _ in range(3):
            text, _, _ = await ask(client, messages, stream=stream)
            messages += [{"role": "assistant", "content": text}, *USER]
        record = await session.close()
        assert not any(body["stream"] for _, body in server.requests)
    one, two, three = record.steps
    assert (one.untrainable, two.untrainable) == (None, None)
    assert two.parent == one.id
    assert bytes(list(two.output_ids[:-1])) == b"two"
    assert bytes(list(two.context_ids[:-1])) == b"hello"
    assert len(two.logprobs) == len(two.output_ids)
    assert (three.parent, three.untrainable) == (None, "server re-tokenised")
    assert len(three.messages) == 5
    assert record.counts["untrainable: server re-tokenised"] == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (WireReply("one", usage_error=1), "usage says 5"),
        (WireReply("one", drop_ids=1), "3 token ids, 4 logprobs"),
    ],
)
async def test_a_server_that_miscounts_does_not_train(gateway, client_of, reply, reason):
    async with WireServer([reply]) as server:
        gateway.route("policy", wire(server, token_ids=True))
        session = gateway.open("s1")
        await ask(client_of(session.endpoint()))
        (step,) = (await session.close()).steps
    assert reason in step.untrainable


async def test_a_server_without_ids_is_said_so(gateway, client_of):
    async with WireServer(["one"], ids=False) as server:
        gateway.route("policy", wire(server, token_ids=True))
        session = gateway.open("s1")
        await ask(client_of(session.endpoint()))
        (step,) = (await session.close()).steps
    assert step.untrainable == "server gave no token ids"


@pytest.mark.parametrize("stream", [False, True])
async def test_transport_faults_are_retried(gateway, client_of, stream):
    replies = [
        WireReply(status=503),
        WireReply(cut=0),
        WireReply(status=429, retry_after="0"),
        "at last",
    ]
    async with WireServer(replies) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1")
        assert (await ask(client_of(session.endpoint()), stream=stream))[0] == "at last"
        record = await session.close()
    assert record.counts["retried transport faults"] == 3
    assert not record.errors


async def test_retry_after_is_honoured(gateway, client_of):
    async with WireServer([WireReply(status=429, retry_after="0.8"), "at last"]) as server:
        gateway.route("policy", wire(server))
        started = time.monotonic()
        await ask(client_of(gateway.open("s1").endpoint()))
        assert time.monotonic() - started >= 0.8


FAULTS = {
    "500": (WireReply(status=500, body="kaboom"), "answered 500: kaboom"),
    "401": (WireReply(status=401, body="who are you"), "answered 401: who are you"),
    "not json": (WireReply(malformed=True, body="<html>hi"), "no chat completion"),
    "other json": (WireReply(malformed=True, body='{"choices": []}'), "no chat completion"),
    "hang": (WireReply(hang=5), "no answer within 0.2 s"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failing_server_is_an_error_with_its_reason(gateway, client_of, name, stream):
    reply, words = FAULTS[name]
    async with WireServer([reply]) as server:
        gateway.route("policy", wire(server, retries=0, timeout=0.2))
        session = gateway.open("s1")
        with pytest.raises(openai.APIError) as caught:
            await ask(client_of(session.endpoint(), max_retries=3), stream=stream)
        assert len(server.requests) == 1, "the client was told not to repeat the call"
        record = await session.close()
    (error,) = record.errors
    if name == "not json" and stream:
        words = "cut its stream"
    if name == "other json" and stream:
        words = "cut its stream"
    assert words in error.message
    assert server.base_url in error.message
    assert words in str(caught.value)
    assert error.category == "model"


async def test_a_server_that_is_down(gateway, client_of):
    gateway.route("policy", WireUpstream("http://127.0.0.1:9/v1", "m", retries=1))
    session = gateway.open("s1")
    with pytest.raises(openai.InternalServerError, match="cannot be reached"):
        await ask(client_of(session.endpoint()))
    (error,) = (await session.close()).errors
    assert "http://127.0.0.1:9/v1" in error.message
    assert "2 attempts" in error.message


async def test_a_cut_stream_is_an_error_in_the_stream(gateway, client_of):
    replies = [WireReply("a long long text", cut=3), "whole"]
    async with WireServer(replies) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1")
        client = client_of(session.endpoint())
        with pytest.raises(openai.APIError):
            await ask(client, stream=True)
        assert (await ask(client, stream=True))[0] == "whole"
        record = await session.close()
    assert [s.output for s in record.steps] == ["whole"]
    assert record.counts["samples superseded by a retry"] == 1
    assert len(record.errors) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
        {"object": "error", "message": "This model's maximum context length is 10 tokens"},
        {"type": "error", "error": {"message": "prompt is too long: 300 tokens > 200 maximum"}},
    ],
)
async def test_overflow_is_recognised(gateway, client_of, body):
    async with WireServer([WireReply(status=400, body=json.dumps(body))]) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1")
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(client_of(session.endpoint()))
        assert caught.value.code == "context_length_exceeded"
        record = await session.close()
    assert record.stop is Stop.CONTEXT_OVERFLOW
    assert not record.errors


async def test_the_agents_own_mistake_is_passed_on(gateway, client_of):
    async with WireServer([WireReply(status=400, body="tools: bad schema")]) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1")
        with pytest.raises(openai.BadRequestError, match="bad schema"):
            await ask(client_of(session.endpoint()))
        assert "bad schema" in (await session.close()).errors[0].message


async def test_the_session_deadline_bounds_retries(gateway, client_of):
    async with WireServer([WireReply(status=503, retry_after="60")]) as server:
        gateway.route("policy", wire(server))
        session = gateway.open("s1", deadline=time.monotonic() + 0.3)
        with pytest.raises(openai.BadRequestError, match="deadline"):
            await ask(client_of(session.endpoint()))
        assert (await session.close()).stop is Stop.TIMEOUT
