"""Chat Completions over a token upstream, as the official client sees it."""

import json
import time
from array import array

import openai
import pytest

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.upstream import Reply, ScriptedUpstream
from rllm_core.types import Stop, VersionSpan

USER = [{"role": "user", "content": "hello"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "", "parameters": {"type": "object"}},
    }
]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def path_ids(steps, step) -> list[int]:
    """Prompt and completion of a step, from the record alone."""
    by_id = {s.id: s for s in steps}
    ids: list[int] = []
    while step is not None:
        ids = [*step.context_ids, *step.output_ids, *ids]
        step = by_id[step.parent] if step.parent else None
    return ids


async def test_a_call_is_answered_and_recorded(gateway: Gateway, renderer, client_of):
    upstream = ScriptedUpstream(["the thing"], renderer, version=3)
    gateway.route("policy", upstream, renderer=renderer, model="tiny")
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    got = await client.chat.completions.create(model="policy", messages=USER)
    assert got.choices[0].message.content == "the thing"
    assert got.choices[0].finish_reason == "stop"
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens
    record = await session.close()
    (step,) = record.steps
    assert step.id == got.id
    assert step.parent is None
    assert step.model == "tiny"
    assert step.output == "the thing"
    assert list(step.context_ids) == renderer.render_ids(USER, add_generation_prompt=True)
    assert step.versions == (VersionSpan(0, len(step.output_ids), 3),)
    assert len(step.logprobs) == len(step.output_ids)
    assert step.untrainable is None
    assert record.stop is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_is_one_branch(gateway: Gateway, renderer, client_of, stream):
    upstream = ScriptedUpstream([f"I will. {CALL}", "the thing is 3"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    messages = [*USER]
    if stream:
        calls: dict = {}
        text = ""
        async for chunk in await client.chat.completions.create(
            model="policy", messages=messages, tools=TOOLS, stream=True
        ):
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or ():
                calls["id"] = call.id or calls.get("id")
                calls["arguments"] = calls.get("arguments", "") + call.function.arguments
        call_id, arguments = calls["id"], calls["arguments"]
    else:
        got = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        assert got.choices[0].finish_reason == "tool_calls"
        text = got.choices[0].message.content
        call_id = got.choices[0].message.tool_calls[0].id
        arguments = got.choices[0].message.tool_calls[0].function.arguments
    assert (text, json.loads(arguments)) == ("I will.", {"a": 1})
    function = {"name": "renamed", "arguments": '{ "a":1 }'}  # as agents send it back
    messages += [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "changed"}],
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": "3"},
    ]
    got = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
    assert got.choices[0].message.content == "the thing is 3"
    first, second = (await session.close()).steps
    assert second.parent == first.id
    assert second.messages == (messages[-1],)
    assert first.tools
    assert not second.tools
    for step, (prompt, _) in zip((first, second), upstream.seen, strict=True):
        assert [*prompt.ids, *step.output_ids] == path_ids((first, second), step)


async def test_a_cut_turn_bridges_too(gateway: Gateway, renderer, client_of):
    upstream = ScriptedUpstream(["the long story", "end"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1", sampling={"max_tokens": 3})
    client = client_of(session.endpoint())
    got = await client.chat.completions.create(model="policy", messages=USER, max_tokens=50)
    assert got.choices[0].finish_reason == "length"
    messages = [*USER, {"role": "assistant", "content": got.choices[0].message.content}, *USER]
    await client.chat.completions.create(model="policy", messages=messages)
    first, second = (await session.close()).steps
    assert len(first.output_ids) == 3
    assert second.parent == first.id
    assert second.context_ids[0] == renderer.get_stop_token_ids()[0]


async def test_sampling_is_enforced_and_seeds_repeat(gateway: Gateway, renderer, client_of):
    upstream = ScriptedUpstream(["x"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        session = gateway.open(name, sampling={"temperature": 1.0, "max_tokens": 20}, seed=seed)
        client = client_of(session.endpoint())
        for limit in (5, 50):
            await client.chat.completions.create(
                model="policy", messages=USER, temperature=0.2, top_p=0.5, max_tokens=limit
            )
    params = [p for _, p in upstream.seen]
    assert [(p.temperature, p.top_p, p.max_tokens) for p in params[:2]] == [
        (1.0, 0.5, 5),
        (1.0, 0.5, 20),
    ]
    seeds = [p.seed for p in params]
    assert seeds[:2] == seeds[2:4]
    assert len(set(seeds)) == 4, "asking again, and another session, samples anew"


async def test_ids_only_for_those_who_ask(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["the x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    create = client.chat.completions.create
    plain = await create(model="policy", messages=USER)
    assert not plain.choices[0].logprobs
    assert "prompt_token_ids" not in (plain.model_extra or {})
    asked = await create(
        model="policy", messages=USER, logprobs=True, extra_body={"return_token_ids": True}
    )
    step = (await session.close()).steps[1]
    assert asked.model_extra["prompt_token_ids"] == list(step.context_ids)
    assert asked.choices[0].model_extra["token_ids"] == list(step.output_ids)
    entries = asked.choices[0].logprobs.content
    assert array("f", [e.logprob for e in entries]) == step.logprobs
    assert "".join(e.token for e in entries) == "the x<|im_end|>"


async def test_stream_carries_usage_when_asked(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["the x"], renderer), renderer=renderer)
    client = client_of(gateway.open("s1").endpoint())
    for options in ({}, {"stream_options": {"include_usage": True}}):
        chunks = [
            c
            async for c in await client.chat.completions.create(
                model="policy", messages=USER, stream=True, **options
            )
        ]
        assert bool(chunks[-1].usage) == bool(options)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "the x"


async def test_stop_strings_cut_text_and_tokens(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["ab END cd"], renderer), renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    got = await client.chat.completions.create(model="policy", messages=USER, stop=["END"])
    assert got.choices[0].message.content == "ab "
    (step,) = (await session.close()).steps
    assert renderer.decode(step.output_ids) == "ab END"
    assert len(step.logprobs) == len(step.output_ids) == step.versions[-1].end


async def test_malformed_tool_calls_stay_visible(gateway: Gateway, renderer, client_of):
    bad = "<tool_call>{not json</tool_call>"
    gateway.route("policy", ScriptedUpstream([f"so: {bad}"], renderer), renderer=renderer)
    client = client_of(gateway.open("s1").endpoint())
    got = await client.chat.completions.create(model="policy", messages=USER, tools=TOOLS)
    assert not got.choices[0].message.tool_calls
    assert bad in got.choices[0].message.content


async def test_overflow_is_a_typed_stop(gateway: Gateway, renderer, client_of):
    upstream = ScriptedUpstream(["x"], renderer, context_window=100)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    long = [{"role": "user", "content": "y" * 200}]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="policy", messages=long)
    assert caught.value.code == "context_length_exceeded"
    assert not upstream.seen
    await client.chat.completions.create(model="policy", messages=USER, max_tokens=500)
    prompt, params = upstream.seen[0]
    assert len(prompt.ids) + params.max_tokens == 100
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="policy", messages=long)
    record = await session.close()
    assert record.stop is Stop.CONTEXT_OVERFLOW
    assert record.counts["calls over the context window"] == 2
    assert record.counts["calls whose max_tokens was clamped to the window"] == 1


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        ({"max_calls": 1}, Stop.CALL_LIMIT),
        ({"max_tokens_total": 2}, Stop.MAX_TOKENS),
        ({"deadline": 0.0}, Stop.TIMEOUT),
    ],
)
async def test_limits_end_a_session(gateway: Gateway, renderer, client_of, limits, stop):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1", **limits)
    client = client_of(session.endpoint())
    with pytest.raises(openai.BadRequestError) as caught:
        for _ in range(2):
            await client.chat.completions.create(model="policy", messages=USER)
    assert caught.value.code == str(stop)
    assert (await session.close()).stop is stop


async def test_a_deadline_cuts_a_call(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["x"], renderer, delay=30), renderer=renderer)
    session = gateway.open("s1", deadline=time.monotonic() + 0.2)
    with pytest.raises(openai.BadRequestError, match="deadline"):
        await client_of(session.endpoint()).chat.completions.create(model="policy", messages=USER)
    record = await session.close()
    assert (record.stop, record.steps) == (Stop.TIMEOUT, ())


async def test_an_upstream_error_is_recorded(gateway: Gateway, renderer, client_of):
    broken = Reply("the thing", error=RuntimeError("device lost"), fail_after=2)
    upstream = ScriptedUpstream([broken, "fine"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint(), max_retries=3)
    for stream in (False, True):
        with pytest.raises(openai.APIError, match="device lost"):
            upstream.seen.clear()
            await client.chat.completions.create(model="policy", messages=USER, stream=stream)
        assert len(upstream.seen) == 1, "the client was told not to repeat the call"
    await client.chat.completions.create(model="policy", messages=USER)
    record = await session.close()
    assert [s.output for s in record.steps] == ["fine"]
    assert [(e.category, e.message) for e in record.errors] == [("model", "device lost")] * 2
    assert "RuntimeError" in record.errors[0].detail


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"n": 3}, "n must be 1"),
        ({"tool_choice": "required", "tools": TOOLS}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "role"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"response_format": {"type": "json_object"}}, "json_object"),
        ({"logprobs": True, "top_logprobs": 5}, "top_logprobs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ],
)
async def test_bad_requests_are_400s_that_say_why(gateway, renderer, client_of, body, words):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    client = client_of(gateway.open("s1").endpoint())
    with pytest.raises(openai.BadRequestError, match=words):
        await client.chat.completions.create(model="policy", messages=USER, extra_body=body)


async def test_models_are_the_sessions_roles(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    gateway.route("judge", ScriptedUpstream(["y"], renderer), renderer=renderer)
    client = client_of(gateway.open("s1").endpoint())
    assert [m.id async for m in await client.models.list()] == ["policy"]
    assert (await client.models.retrieve("policy")).id == "policy"
    with pytest.raises(openai.PermissionDeniedError):
        await client.chat.completions.create(model="judge", messages=USER)


async def test_agents_have_trajectories_of_their_own(gateway: Gateway, renderer, client_of):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    gateway.route("judge", ScriptedUpstream(["y"], renderer), renderer=renderer)
    session = gateway.open("s1", roles=("policy", "judge"))
    for agent, role in (("solver", "policy"), ("the critic/2", "policy"), ("j", "judge")):
        client = client_of(session.endpoint(agent, role))
        await client.chat.completions.create(model=role, messages=USER)
    steps = (await session.close()).steps
    assert [(s.agent, s.role, s.output) for s in steps] == [
        ("solver", "policy", "x"),
        ("the critic/2", "policy", "x"),
        ("j", "judge", "y"),
    ]


async def test_think_stripping_template_opens_a_branch(gateway: Gateway, client_of):
    from rllm_core.testing.tokenizer import AmbiguousTokenizer

    renderer = ChatMLRenderer(AmbiguousTokenizer(), thinking="strip")
    upstream = ScriptedUpstream(["<think>\nhm\n</think>\n\nyes", "no"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    got = await client.chat.completions.create(model="policy", messages=USER)
    message = got.choices[0].message
    assert (message.content, message.model_extra["reasoning_content"]) == ("yes", "hm")
    messages = [*USER, {"role": "assistant", "content": "yes"}, *USER]
    await client.chat.completions.create(model="policy", messages=messages)
    record = await session.close()
    assert [s.parent for s in record.steps] == [None, None]
    assert record.counts["not bridged: the template is not append-only here"] == 1


@pytest.mark.parametrize("change", ["tools", "renderer", "system"])
async def test_what_makes_another_branch(gateway: Gateway, renderer, client_of, change):
    upstream = ScriptedUpstream(["x"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    create = client_of(session.endpoint()).chat.completions.create
    messages = [{"role": "system", "content": "a"}, *USER]
    await create(model="policy", messages=messages, tools=TOOLS)
    tools = TOOLS
    messages = [*messages, {"role": "assistant", "content": "x"}, *USER]
    if change == "tools":
        tools = [*TOOLS, {"type": "function", "function": {"name": "new"}}]
    elif change == "system":
        messages[0] = {"role": "system", "content": "b"}
    else:
        gateway.route("policy", upstream, renderer=ChatMLRenderer(renderer.tokenizer))
    await create(model="policy", messages=messages, tools=tools)
    record = await session.close()
    assert [s.parent for s in record.steps] == [None, None]
    assert len(record.steps[1].messages) == 4
    refused = {"not bridged: the renderer has changed": 1} if change == "renderer" else {}
    assert record.counts == refused


async def test_equal_replies_of_one_prompt_each_go_on(gateway: Gateway, renderer, client_of):
    """An agent that votes: each of two equal samples is continued once."""
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    create = client_of(session.endpoint()).chat.completions.create
    for _ in range(2):
        await create(model="policy", messages=USER)
    for _ in range(2):
        messages = [*USER, {"role": "assistant", "content": "x"}, *USER]
        await create(model="policy", messages=messages)
    one, two, three, four = (await session.close()).steps
    assert {three.parent, four.parent} == {one.id, two.id}


async def test_the_clients_own_stream_helper(gateway: Gateway, renderer, client_of):
    text = f"I will. {CALL}\n{CALL}"
    gateway.route("policy", ScriptedUpstream([text], renderer, piece=3), renderer=renderer)
    client = client_of(gateway.open("s1").endpoint())
    async with client.chat.completions.stream(
        model="policy",
        messages=USER,
        tools=TOOLS,
        logprobs=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    ) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in events
    calls = final.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [{"a": 1}, {"a": 1}]
    assert len({c.id for c in calls}) == 2
    assert final.choices[0].finish_reason == "tool_calls"
    assert len(final.choices[0].logprobs.content) == final.usage.completion_tokens


async def test_a_prompt_of_no_tokens_is_refused(gateway, renderer, client_of):
    class Bare(type(renderer)):
        """A base model's template: the text and nothing around it."""

        def render_ids(self, messages, *, tools=None, add_generation_prompt=False):
            return [i for m in messages for i in self.encode(m["content"])]

    bare = Bare.__new__(Bare)
    vars(bare).update(vars(renderer))
    upstream = ScriptedUpstream(["hi"], bare)
    gateway.route("policy", upstream, renderer=bare)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    with pytest.raises(openai.BadRequestError, match="the prompt is empty"):
        await client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": ""}]
        )
    assert not upstream.seen
    assert not (await session.close()).steps
