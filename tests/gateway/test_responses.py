"""OpenAI Responses, as the official client sees it, over token and wire upstreams."""

import json

import aiohttp
import pytest
from openai import BadRequestError

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.testing.wire_server import WireReply, WireServer
from rllm_core.upstream import WireUpstream

ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files."}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
AGENTS = {"type": "namespace", "name": "agents", "tools": [{**ADD, "name": "spawn"}, PATCH]}
TEXT = {"role": "user", "content": "hello"}


def called(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def ask(client, stream: bool, **request):
    """One reply, whole or gathered from a stream by the client itself."""
    request = {"model": "policy", **request}
    if not stream:
        return await client.responses.create(**request)
    async with client.responses.stream(**request) as events:
        seen = [event async for event in events]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    return seen[-1].response


def kinds(response) -> list[str]:
    return [item.type for item in response.output]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_is_one_branch(gateway: Gateway, renderer, client_of, stream):
    calls = [called("add", a=1), called("patch", input="x\ny"), called("agents__spawn", b=2)]
    upstream = ScriptedUpstream([f"I will. {''.join(calls)}", "done"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    tools = [ADD, PATCH, {"type": "web_search"}, {**AGENTS, "tools": AGENTS["tools"][:1]}]
    history: list = [{"role": "developer", "content": "be kind"}, TEXT]
    got = await ask(client, stream, input=history, tools=tools, store=False)
    assert kinds(got) == ["message", "function_call", "custom_tool_call", "function_call"]
    assert (got.status, got.output_text.strip()) == ("completed", "I will.")
    _, add, patch, spawn = got.output
    assert (add.name, json.loads(add.arguments)) == ("add", {"a": 1})
    assert (patch.name, patch.input) == ("patch", "x\ny")
    assert (spawn.name, spawn.namespace) == ("spawn", "agents")
    assert got.usage.input_tokens == len(upstream.seen[0][0].ids)
    assert got.usage.total_tokens == got.usage.input_tokens + got.usage.output_tokens
    history += [item.model_dump(exclude_none=True) for item in got.output]
    for item in (add, spawn):
        history.append({"type": "function_call_output", "call_id": item.call_id, "output": "3"})
    parts = [{"type": "input_text", "text": "ok"}]
    history.append({"type": "custom_tool_call_output", "call_id": patch.call_id, "output": parts})
    got = await ask(client, stream, input=history, tools=tools, store=False)
    assert (kinds(got), got.output_text) == (["message"], "done")
    record = await session.close()
    first, second = record.steps
    assert (first.parent, second.parent) == (None, first.id)
    assert [m["role"] for m in second.messages] == ["tool", "tool", "tool"]
    prompt = first.context_ids + first.output_ids + second.context_ids
    assert upstream.seen[1][0].ids == prompt
    assert record.counts["calls whose tool web_search was ignored"] == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_wire_upstream_is_asked_in_chat_form(gateway: Gateway, client_of, stream):
    reply = WireReply("so", "hm", [("patch", "not json"), ("local_shell", '{"command": ["ls"]}')])
    async with WireServer([reply]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        session = gateway.open("s1")
        got = await ask(
            client_of(session.endpoint()),
            stream,
            instructions="be kind",
            input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
            tools=[{**PATCH, "format": GRAMMAR}, {"type": "local_shell"}],
            tool_choice={"type": "custom", "name": "patch"},
            parallel_tool_calls=False,
            reasoning={"effort": "low", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
            max_output_tokens=99,
        )
        _, body = server.requests[0]
    assert kinds(got) == ["reasoning", "message", "custom_tool_call", "local_shell_call"]
    assert (got.output[0].summary[0].text, got.output[2].input) == ("hm", "not json")
    assert got.output[3].action.command == ["ls"]
    assert got.output[0].encrypted_content
    assert (got.instructions, got.max_output_tokens) == ("be kind", 99)
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"][0]["image_url"] == {"url": "data:,"}
    assert body["tool_choice"]["function"] == {"name": "patch"}
    assert "lark" in body["tools"][0]["function"]["description"]
    assert (body["parallel_tool_calls"], body["max_tokens"]) == (False, 99)
    assert body["reasoning_effort"] == "low"
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}


@pytest.mark.parametrize("kept", ["sealed", "summary", "dropped"])
async def test_thinking_comes_back_in_any_form(gateway: Gateway, client_of, kept):
    renderer = ChatMLRenderer(AmbiguousTokenizer(), thinking="keep")
    upstream = ScriptedUpstream(["<think>\nhm\n</think>\n\nyes", "no"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    include = ["reasoning.encrypted_content"] if kept == "sealed" else []
    reasoning = {"summary": "auto"} if kept == "summary" else {}
    ask_more = {"include": include, "reasoning": reasoning}
    got = await ask(client, True, input="hello", **ask_more)
    assert kinds(got) == ["reasoning", "message"]
    assert len(got.output[0].summary) == (kept == "summary")
    items = [item.model_dump(exclude_none=True) for item in got.output]
    history = [TEXT, *(items[1:] if kept == "dropped" else items), TEXT]
    await ask(client, False, input=history, **ask_more)
    first, second = (await session.close()).steps
    assert second.parent == first.id
    told = [TEXT, {**items[0], "type": "reasoning"}, items[1]]
    if kept != "dropped":
        session = gateway.open("s2")  # elsewhere the readable form stands in for the tokens
        await ask(client_of(session.endpoint()), False, input=[*told, TEXT])
        (step,) = (await session.close()).steps
        assert step.messages[1]["reasoning_content"] == "hm"


async def test_earlier_responses_are_continued_by_their_id(gateway: Gateway, renderer, client_of):
    upstream = ScriptedUpstream(["one", "two", "three", "four"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    one = await ask(client, False, input="a", instructions="be kind")
    two = await ask(client, True, input="b", instructions="be kind", previous_response_id=one.id)
    three = await ask(client, False, input="c", previous_response_id=two.id)
    await ask(client, False, input="d", instructions="be curt", previous_response_id=three.id)
    with pytest.raises(BadRequestError, match="not found") as caught:
        await ask(client, False, input="b", previous_response_id="resp_1")
    assert caught.value.code == "previous_response_not_found"
    steps = (await session.close()).steps
    assert [s.parent for s in steps] == [None, one.id, None, None]
    assert [m["content"] for m in steps[2].messages] == ["a", "one", "b", "two", "c"]
    told = [m["content"] for m in steps[3].messages]
    assert told == ["be curt", "a", "one", "b", "two", "c", "three", "d"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_cut_short_is_incomplete(gateway: Gateway, renderer, client_of, stream):
    gateway.route("policy", ScriptedUpstream(["one two three"], renderer), renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    got = await ask(client, stream, input="a", max_output_tokens=2)
    assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    await session.close()


async def test_a_stream_that_breaks_says_so(gateway: Gateway, client_of):
    async with WireServer([WireReply("a b c d e f", cut=3)]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m", retries=0))
        session = gateway.open("s1")
        client = client_of(session.endpoint())
        events = await client.responses.create(model="policy", input="a", stream=True)
        last = [event async for event in events][-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert server.base_url in last.response.error.message
    assert not (await session.close()).steps


async def test_codex_falls_back_from_its_websocket_at_once(gateway: Gateway, renderer):
    gateway.route("policy", ScriptedUpstream(["hi"], renderer), renderer=renderer)
    session = gateway.open("s1")
    url = f"{session.endpoint().base_url}/responses"
    headers = {"Authorization": f"Bearer {session.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(url)
        warm = {"model": "policy", "input": [], "generate": False, "stream": True}
        async with http.post(url, json=warm) as answer:
            events = (await answer.text()).split("\n\n")
    assert caught.value.status == 426
    assert "response.completed" in events[-2]
    record = await session.close()
    assert not record.steps
    assert record.counts == {"warm-ups answered without a model": 1}


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"tools": [{"type": "file_search"}]}, "file_search"),
        ({"tools": [ADD, {**PATCH, "name": "add"}]}, "'add'"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "sub"}}, "'sub'"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": []}, "input"),
        ({"background": True}, "background"),
        ({"max_output_tokens": 0}, "max"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    gateway: Gateway, renderer, client_of, request_, named
):
    gateway.route("policy", ScriptedUpstream(["hi"], renderer), renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(BadRequestError, match=named):
        await ask(client_of(session.endpoint()), False, **{"input": "a", **request_})
    assert not (await session.close()).steps


async def test_ids_and_logprobs_are_for_those_who_ask(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["one two"], renderer), renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    include = ["message.output_text.logprobs"]
    plain = await ask(client, False, input="a")
    full = await ask(
        client, True, input="a", include=include, extra_body={"return_token_ids": True}
    )
    assert plain.output[0].content[0].logprobs == []
    assert not hasattr(plain, "token_ids")
    step = (await session.close()).steps[1]
    assert full.token_ids == list(step.output_ids)
    assert full.prompt_token_ids == list(step.context_ids)
    shown = [entry.logprob for entry in full.output[0].content[0].logprobs]
    assert shown == pytest.approx(list(step.logprobs))
