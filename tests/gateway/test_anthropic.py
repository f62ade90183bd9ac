"""Anthropic Messages, as the official client sees it, over token and wire upstreams."""

import json

import pytest

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.testing.wire_server import WireReply, WireServer
from rllm_core.types import Stop
from rllm_core.upstream import WireUpstream

anthropic = pytest.importorskip("anthropic", reason="needs Anthropic's client: the test extra")

USER = [{"role": "user", "content": "hello"}]
ASK = {"model": "policy", "max_tokens": 512}
TOOLS = [{"name": "add", "description": "", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'
THINKING = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
async def claude():
    """Makes official clients for a session."""
    clients = []

    def make(session, *, base="", **options):
        base = base or session.endpoint().base_url.removesuffix("/v1")
        options = {"max_retries": 0, "timeout": 20, "api_key": session.key, **options}
        clients.append(anthropic.AsyncAnthropic(base_url=base, **options))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def ask(client, stream: bool, **request):
    """One reply, whole or gathered from a stream by the client itself."""
    if not stream:
        return await client.messages.create(**{**ASK, **request})
    async with client.messages.stream(**{**ASK, **request}) as events:
        return await events.get_final_message()


def kinds(message) -> list[str]:
    return [block.type for block in message.content]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_is_one_branch(gateway: Gateway, renderer, claude, stream):
    replies = [f"I will. {CALL % 1}\n{CALL % 2}", "the thing is 3"]
    upstream = ScriptedUpstream(replies, renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = claude(session)
    messages: list = [*USER]
    got = await ask(client, stream, messages=messages, tools=TOOLS, system="be kind")
    assert (kinds(got), got.stop_reason) == (["text", "tool_use", "tool_use"], "tool_use")
    assert [b.input for b in got.content[1:]] == [{"a": 1}, {"a": 2}]
    assert got.usage.input_tokens == len(upstream.seen[0][0].ids)
    assert got.usage.output_tokens > 0
    messages.append({"role": "assistant", "content": got.content})
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block.id,
            "content": [{"type": "text", "text": "3"}],
            "cache_control": {"type": "ephemeral"},
        }
        for block in got.content[1:]
    ]
    messages.append({"role": "user", "content": [*results, {"type": "text", "text": "well?"}]})
    system = [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}]
    got = await ask(client, stream, messages=messages, tools=TOOLS, system=system)
    assert (got.content[0].text, got.stop_reason) == ("the thing is 3", "end_turn")
    first, second = (await session.close()).steps
    assert (first.parent, second.parent) == (None, first.id)
    assert [m["role"] for m in second.messages] == ["tool", "tool", "user"]
    prompt = first.context_ids + first.output_ids + second.context_ids
    assert upstream.seen[1][0].ids == prompt


@pytest.mark.parametrize("stream", [False, True])
async def test_a_wire_upstream_is_asked_in_chat_form(gateway: Gateway, claude, stream):
    called = WireReply("so", "hm", [("add", '{"a": 1}'), ("add", "not json"), ("add", "")])
    async with WireServer([called]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        session = gateway.open("s1")
        image = {"type": "base64", "media_type": "image/png", "data": "aGk="}
        got = await ask(
            claude(session),
            stream,
            messages=[{"role": "user", "content": [{"type": "image", "source": image}]}],
            tools=TOOLS,
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            thinking=THINKING,
            stop_sequences=["END"],
            output_config={
                "effort": "low",
                "format": {"type": "json_schema", "schema": {"type": "object"}},
            },
        )
        _, body = server.requests[0]
    assert kinds(got) == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    assert (got.content[0].thinking, bool(got.content[0].signature)) == ("hm", True)
    assert [b.input for b in got.content[2:]] == [{"a": 1}, {"arguments": "not json"}, {}]
    assert got.usage.output_tokens > 0
    assert got.usage.input_tokens > 0
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    ]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert (body["stop"], body["max_tokens"]) == (["END"], 512)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert body["tools"][0]["function"]["parameters"] == {"type": "object"}


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_shown_to_those_who_ask(gateway: Gateway, claude, stream):
    renderer = ChatMLRenderer(AmbiguousTokenizer(), thinking="keep")
    upstream = ScriptedUpstream(["<think>\nhm\n</think>\n\nyes"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = claude(session)
    shown = await ask(client, stream, messages=USER, thinking=THINKING)
    assert kinds(shown) == ["thinking", "text"]
    hidden = await ask(client, stream, messages=[{"role": "user", "content": "b"}])
    assert (kinds(hidden), hidden.content[0].text) == (["text"], "yes")
    for reply in (shown.content, [shown.content[1]], "yes"):
        history = [*USER, {"role": "assistant", "content": reply}, *USER]
        await ask(client, stream, messages=history, thinking=THINKING)
    steps = (await session.close()).steps
    assert [s.parent for s in steps[2:]] == [steps[0].id] * 3


async def test_how_replies_end(gateway: Gateway, renderer, claude):
    gateway.route("policy", ScriptedUpstream(["one two three"], renderer), renderer=renderer)
    client = claude(gateway.open("s1"))
    stopped = await ask(client, False, messages=USER, stop_sequences=["three", "two"])
    assert stopped.content[0].text == "one "
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "two")
    assert (await ask(client, True, messages=USER, max_tokens=1)).stop_reason == "max_tokens"
    gateway.route("policy", ScriptedUpstream([""], renderer))
    for stream in (False, True):
        silent = await ask(client, stream, messages=USER)
        assert (kinds(silent), silent.stop_reason) == (["text"], "end_turn")


@pytest.mark.parametrize("stream", [False, True])
async def test_overflow_is_anthropics_own_error(gateway: Gateway, renderer, claude, stream):
    upstream = ScriptedUpstream(["x"], renderer, context_window=16)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    long = [{"role": "user", "content": "so long " * 10}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        await ask(claude(session), stream, messages=long)
    error = caught.value.body["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("prompt is too long: ")
    assert error["message"].endswith(" tokens > 16 maximum")
    assert (await session.close()).stop is Stop.CONTEXT_OVERFLOW


async def test_a_servers_overflow_is_told_in_anthropics_words(gateway: Gateway, claude):
    body = '{"error": {"message": "maximum context length is 10", "code": null}}'
    async with WireServer([WireReply(status=400, body=body)]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        session = gateway.open("s1")
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .* is 10"):
            await ask(claude(session), True, messages=USER)
    assert (await session.close()).stop is Stop.CONTEXT_OVERFLOW


async def test_errors_have_the_apis_own_shape(gateway: Gateway, renderer, claude):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(anthropic.AuthenticationError) as caught:
        await ask(claude(session, api_key="no"), False, messages=USER)
    assert caught.value.body["error"]["type"] == "authentication_error"
    client = claude(session, auth_token=session.key, api_key=None)
    assert (await ask(client, False, messages=USER)).content[0].text == "x"
    gateway.route("policy", ScriptedUpstream([RuntimeError("device lost")], renderer))
    client = claude(session, max_retries=2)
    with pytest.raises(anthropic.InternalServerError, match="device lost") as failed:
        await ask(client, False, messages=USER)
    assert failed.value.body["error"]["type"] == "api_error"
    await session.close()
    with pytest.raises(anthropic.BadRequestError, match="closed"):
        await ask(client, True, messages=USER)


async def test_an_error_and_pings_inside_a_stream(renderer, claude):
    gateway = Gateway(keepalive=0.02)
    await gateway.start()
    slow = ScriptedUpstream([RuntimeError("device lost")], renderer, delay=0.1)
    gateway.route("policy", slow, renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(anthropic.APIStatusError, match="device lost"):
        await ask(claude(session), True, messages=USER)
    gateway.route("policy", ScriptedUpstream(["late"], renderer, delay=0.1))
    assert (await ask(claude(session), True, messages=USER)).content[0].text == "late"
    await gateway.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role must be user, assistant"),
        ({"messages": [*USER, {"role": "assistant", "content": "{"}]}, "prefill"),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "hologram"),
        ({"tools": TOOLS, "tool_choice": {"type": "any"}}, "cannot be forced"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop_sequences": [1]}, "stop_sequences must be"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "json_schema"),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]},
            "image_url",
        ),
    ],
)  # fmt: skip
async def test_bad_requests_are_400s_that_say_why(gateway, renderer, claude, body, words):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    with pytest.raises(anthropic.BadRequestError, match=words) as caught:
        await ask(claude(gateway.open("s1")), False, messages=USER, extra_body=body)
    assert caught.value.body["error"]["type"] == "invalid_request_error"


async def test_what_agents_send_besides(gateway: Gateway, renderer, claude):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    client = claude(session, base=session.endpoint().base_url)  # the client adds /v1 once more
    billed = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0"}
    await client.beta.messages.create(
        model="claude-haiku-4-5",
        max_tokens=10,
        system=[billed, {"type": "text", "text": "be kind"}],
        messages=[*USER, {"role": "system", "content": "the clock struck"}],
        betas=["context-management-2025-06-27"],
        metadata={"user_id": "u"},
        extra_body={"context_management": {"edits": []}, "novelty": 1},
    )
    failed = {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}
    turns = [
        *USER,
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
        {"role": "user", "content": [failed]},
    ]
    await ask(client, False, messages=turns)
    record = await session.close()
    assert [m["content"] for m in record.steps[0].messages] == [
        "be kind",
        "hello",
        "the clock struck",
    ]
    assert record.steps[1].messages[-1]["content"] == "Error: no"
    assert record.counts["calls whose novelty was ignored"] == 1
    assert record.counts["calls that named another model, sent to the default role"] == 1
    assert "calls whose metadata was ignored" not in record.counts


async def test_token_counts_are_those_of_the_prompt(gateway: Gateway, renderer, claude):
    upstream = ScriptedUpstream(["yes"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = claude(session)
    request = {"model": "policy", "messages": USER, "system": "be kind", "tools": TOOLS}
    counted = await client.messages.count_tokens(**request)
    got = await ask(client, False, **request)
    assert counted.input_tokens == got.usage.input_tokens
    turns = [*USER, {"role": "assistant", "content": "yes"}, *USER]
    counted = await client.messages.count_tokens(**{**request, "messages": turns})
    got = await ask(client, False, **{**request, "messages": turns})
    assert counted.input_tokens == got.usage.input_tokens
    async with WireServer(["x"]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        assert (await client.messages.count_tokens(**request)).input_tokens > 10
    record = await session.close()
    assert len(record.steps) == 2
    assert record.counts["token counts that were estimated"] == 1


async def test_models_are_listed(gateway: Gateway, renderer, claude):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    client = claude(gateway.open("s1"))
    assert [m.id async for m in await client.models.list()] == ["policy"]
    assert (await client.models.retrieve("policy")).display_name == "policy"
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("nothing")


async def test_arguments_arrive_as_json_text(gateway: Gateway, renderer, claude):
    gateway.route("policy", ScriptedUpstream([CALL % 7], renderer), renderer=renderer)
    client = claude(gateway.open("s1"))
    text = ""
    async with client.messages.stream(**ASK, messages=USER, tools=TOOLS) as events:
        async for event in events:
            if event.type == "input_json":
                text += event.partial_json
    assert json.loads(text) == {"a": 7}
