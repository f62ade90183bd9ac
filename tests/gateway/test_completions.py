"""OpenAI Completions, as the official client sees it."""

import pytest
from openai import BadRequestError

from rllm_core.gateway import Gateway
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.testing.wire_server import WireServer
from rllm_core.upstream import WireUpstream


async def ask(client, stream: bool, **request):
    """The text, the last choice, and the usage."""
    request = {"model": "policy", "max_tokens": 64, **request}
    if not stream:
        got = await client.completions.create(**request)
        return got.choices[0].text, got.choices[0], got.usage
    usage = {"stream_options": {"include_usage": True}}
    chunks = [c async for c in await client.completions.create(**request, **usage, stream=True)]
    choices = [c.choices[0] for c in chunks if c.choices]
    return "".join(c.text for c in choices), choices[-1], chunks[-1].usage


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_prompt_goes_upstream_as_it_is(gateway: Gateway, renderer, client_of, stream):
    said = "one <tool_call>\n{}\n</tool_call> two"
    upstream = ScriptedUpstream([said], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = client_of(session.endpoint())
    prompt = renderer.encode("the thing")
    asked = {"logprobs": 1, "extra_body": {"return_token_ids": True}}
    text, choice, usage = await ask(client, stream, prompt=prompt, **asked)
    plain, bare, _ = await ask(client, stream, prompt="the thing")
    first, second = (await session.close()).steps
    assert [list(seen.ids) for seen, _ in upstream.seen] == [prompt, prompt]
    assert text == plain == said
    assert (choice.token_ids, choice.prompt_token_ids) == (list(first.output_ids), prompt)
    assert choice.logprobs.token_logprobs == pytest.approx(list(first.logprobs))
    assert (bare.logprobs, hasattr(bare, "token_ids")) == (None, False)
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), len(first.output_ids))
    assert (first.parent, second.parent, choice.finish_reason) == (None, None, "stop")
    assert first.messages == ({"role": "prompt", "content": "the thing"},)
    assert first.untrainable is None


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [-1]},
        {"prompt": ["a", "b"]},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "logprobs": 5},
        {"prompt": "a", "n": 2},
    ],
)
async def test_what_cannot_be_served_is_refused(gateway: Gateway, renderer, client_of, request_):
    gateway.route("policy", ScriptedUpstream(["hi"], renderer), renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(BadRequestError):
        await ask(client_of(session.endpoint()), False, **request_)
    assert not (await session.close()).steps


async def test_a_chat_server_takes_no_plain_prompt(gateway: Gateway, client_of):
    async with WireServer(["hi"]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        session = gateway.open("s1")
        with pytest.raises(BadRequestError, match="token upstream"):
            await ask(client_of(session.endpoint()), False, prompt="a")
        assert not server.requests
