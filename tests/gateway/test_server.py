"""Keys, sessions, gates, disconnects and everything that is no model call."""

import asyncio
import gc
import io
import json
import tracemalloc

import aiohttp
import openai
import pytest

from rllm_core.errors import ConfigError, RolloutTimeout
from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import CharRenderer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.upstream import Endpoint

USER = [{"role": "user", "content": "hello"}]
BODY = {"model": "policy", "messages": USER}


async def post(endpoint: Endpoint, body, *, key=None, path="/chat/completions", **options):
    headers = {"Authorization": f"Bearer {key or endpoint.api_key}"}
    async with aiohttp.ClientSession() as http:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with http.post(
            endpoint.base_url + path, data=io.BytesIO(data), headers=headers, **options
        ) as got:
            return got.status, await got.text()


async def seen(upstream: ScriptedUpstream) -> None:
    """Wait until a call has reached the upstream."""
    async with asyncio.timeout(5):
        while not upstream.seen:  # noqa: ASYNC110 - the double has no event
            await asyncio.sleep(0.01)


@pytest.fixture
def routed(gateway: Gateway, renderer) -> Gateway:
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    return gateway


async def test_wrong_key_unknown_and_closed_sessions(routed: Gateway):
    session = routed.open("s1")
    other = routed.open("s2")
    assert (await post(session.endpoint(), BODY, key=other.key))[0] == 401
    assert (await post(session.endpoint(), BODY))[0] == 200
    await session.close()
    status, text = await post(session.endpoint(), BODY)
    assert status == 400
    assert "closed" in json.loads(text)["error"]["message"]
    again = routed.open("s1")
    assert (await post(session.endpoint(), BODY))[0] == 401
    assert (await post(again.endpoint(), BODY))[0] == 200


@pytest.mark.parametrize("header", ["x-api-key", "x-goog-api-key"])
async def test_keys_in_other_headers(routed: Gateway, header):
    endpoint = routed.open("s1").endpoint()
    async with aiohttp.ClientSession() as http:
        url = f"{endpoint.base_url}/models"
        async with http.get(url, headers={header: endpoint.api_key}) as got:
            assert got.status == 200
        async with http.get(f"{url}?key={endpoint.api_key}") as got:
            assert got.status == 200
        async with http.get(url) as got:
            assert got.status == 401


async def test_probes_are_answered_without_a_call(routed: Gateway):
    session = routed.open("s1")
    headers = {"Authorization": f"Bearer {session.key}"}
    base = f"{routed.url}/sessions/s1"
    async with aiohttp.ClientSession(headers=headers) as http:
        assert (await http.head(base)).status == 200
        assert (await http.head(f"{routed.url}/api/hello")).status == 200
        assert (await http.get(routed.url)).status == 200
        assert (await http.get(f"{base}/api/v1/models")).status == 200
        assert (await http.get(f"{base}/v1/models/nothing")).status == 404
        assert (await http.post(f"{base}/api/show", json={})).status == 404
        assert (await http.get(f"{routed.url}/elsewhere")).status == 404
    assert (await session.close()).steps == ()


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"messages": 3}']
)
async def test_malformed_bodies(routed: Gateway, body):
    status, text = await post(routed.open("s1").endpoint(), body)
    assert status == 400
    assert json.loads(text)["error"]["type"] == "invalid_request_error"


async def test_half_surrogates_and_odd_fields(routed: Gateway):
    body = (
        b'{"model": "policy", "unknown": [1], "messages": [{"role": "user", "content": "\\ud800"}]}'
    )
    assert (await post(routed.open("s1").endpoint(), body))[0] == 200


async def test_a_body_over_the_limit(renderer):
    gateway = Gateway(max_body=1 << 20)
    await gateway.start()
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    big = [{"role": "user", "content": "y" * (2 << 20)}]
    status, text = await post(gateway.open("s1").endpoint(), {**BODY, "messages": big})
    assert (status, json.loads(text)["error"]["message"][:11]) == (413, "the request")
    await gateway.close()


async def test_hold_waits_and_the_new_upstream_answers(routed: Gateway, renderer, client_of):
    slow = ScriptedUpstream(["old"], renderer, version=1, delay=0.3)
    routed.route("policy", slow, renderer=renderer)
    session = routed.open("s1")
    create = client_of(session.endpoint()).chat.completions.create
    first = asyncio.create_task(create(model="policy", messages=USER))
    await seen(slow)
    await routed.hold("policy")
    with pytest.raises(RolloutTimeout, match="1 calls"):
        await routed.drain("policy", 0.01)
    second = asyncio.create_task(create(model="policy", messages=USER))
    await routed.drain("policy", 5)
    assert first.done() or (await first)
    await asyncio.sleep(0.05)
    assert not second.done()
    routed.route("policy", ScriptedUpstream(["new"], renderer, version=2))
    routed.release("policy")
    assert (await second).choices[0].message.content == "new"
    old, new = (await session.close()).steps
    assert (old.versions[0].version, new.versions[0].version) == (1, 2)


async def test_an_aborted_sample_goes_on_with_the_new_weights(routed, renderer, client_of):
    from array import array

    from rllm_core.upstream import Sampled

    class Aborted(ScriptedUpstream):
        async def sample(self, prompt, params):
            self.seen.append((prompt, params))
            yield Sampled(array("i", renderer.encode("ab")), array("f", [-1, -1]), 1)
            await routed.hold("policy")

    old = Aborted([], renderer)
    new = ScriptedUpstream(["cd"], renderer, version=2)
    routed.route("policy", old, renderer=renderer)
    session = routed.open("s1")
    create = client_of(session.endpoint()).chat.completions.create
    call = asyncio.create_task(create(model="policy", messages=USER, max_tokens=10))
    await seen(old)
    await routed.drain("policy", 5)
    routed.route("policy", new)
    routed.release("policy")
    assert (await call).choices[0].message.content == "abcd"
    (step,) = (await session.close()).steps
    assert [(v.start, v.end, v.version) for v in step.versions] == [(0, 2, 1), (2, 5, 2)]
    prompt, params = new.seen[0]
    assert prompt.ids == step.context_ids + step.output_ids[:2]
    assert params.max_tokens == 8


async def test_close_cuts_calls_in_flight(routed: Gateway, renderer, client_of):
    slow = ScriptedUpstream(["x"], renderer, delay=60)
    routed.route("policy", slow, renderer=renderer)
    session = routed.open("s1")
    client = client_of(session.endpoint())
    call = asyncio.create_task(client.chat.completions.create(model="policy", messages=USER))
    await seen(slow)
    record = await session.close()
    assert record.steps == ()
    with pytest.raises(openai.BadRequestError, match="closed during this call"):
        await call


async def test_a_client_that_times_out_and_repeats(routed: Gateway, renderer, client_of):
    slow = ScriptedUpstream(["late"], renderer, delay=30)
    routed.route("policy", slow, renderer=renderer)
    session = routed.open("s1", seed=5)
    hasty = client_of(session.endpoint(), timeout=0.2)
    with pytest.raises(openai.APITimeoutError):
        await hasty.chat.completions.create(model="policy", messages=USER)
    await routed.drain("policy", 5)
    quick = ScriptedUpstream(["in time"], renderer)
    routed.route("policy", quick)
    await client_of(session.endpoint()).chat.completions.create(model="policy", messages=USER)
    record = await session.close()
    assert [s.output for s in record.steps] == ["in time"]
    assert record.counts["samples superseded by a retry"] == 1
    assert quick.seen[0][1].seed == slow.seen[0][1].seed, "the retry takes the old one's place"


async def test_keepalive_while_a_stream_samples(renderer):
    gateway = Gateway(keepalive=0.05)
    await gateway.start()
    slow = ScriptedUpstream(["x"], renderer, delay=0.3)
    gateway.route("policy", slow, renderer=renderer)
    session = gateway.open("s1")
    _, text = await post(session.endpoint(), {**BODY, "stream": True})
    assert text.count(": keep-alive\n\n") >= 3
    assert text.endswith("data: [DONE]\n\n")
    await gateway.close()


async def test_an_error_after_the_stream_began(renderer):
    gateway = Gateway(keepalive=0.05)
    await gateway.start()
    failing = ScriptedUpstream([RuntimeError("lost")], renderer, delay=0.2)
    gateway.route("policy", failing, renderer=renderer)
    status, text = await post(gateway.open("s1").endpoint(), {**BODY, "stream": True})
    assert status == 200
    assert '"message": "lost"' in text
    await gateway.close()


async def test_configuration_mistakes(routed: Gateway, renderer):
    with pytest.raises(ConfigError, match="no upstream is routed for the role 'judge'"):
        routed.open("s1", roles=("judge",))
    with pytest.raises(ConfigError, match="cannot enforce min_p"):
        routed.open("s1", sampling={"min_p": 0.1})
    session = routed.open("s1")
    with pytest.raises(ConfigError, match="open already"):
        routed.open("s1")
    with pytest.raises(ConfigError, match="part of a URL"):
        routed.open("a/b")
    with pytest.raises(ConfigError, match="does not open the role"):
        session.endpoint(role="judge")
    with pytest.raises(ConfigError, match="without a renderer"):
        routed.route("new", ScriptedUpstream(["x"], renderer))
    with pytest.raises(ConfigError, match="cannot listen"):
        await Gateway(port=routed.port).start()


async def test_many_calls_at_once(routed: Gateway):
    sessions = [routed.open(f"s{i}") for i in range(64)]
    results = await asyncio.gather(*(post(s.endpoint(), BODY) for s in sessions))
    assert {status for status, _ in results} == {200}
    for session in sessions:
        assert len((await session.close()).steps) == 1


class Forgetful(ScriptedUpstream):
    """Keeps no prompts: only the gateway's memory is looked at."""

    def __init__(self, text, renderer):
        super().__init__([text], renderer)

    async def sample(self, prompt, params):
        async for piece in super().sample(prompt, params):
            yield piece
        self.seen.clear()


async def test_sessions_leave_nothing_behind(routed: Gateway):
    long = [{"role": "user", "content": "12+" * 2000}]
    routed.route("policy", Forgetful("4", CharRenderer()), renderer=CharRenderer())
    async with aiohttp.ClientSession() as http:

        async def rollouts(first: int, count: int) -> int:
            for i in range(first, first + count):
                session = routed.open(f"s{i}")
                headers = {"Authorization": f"Bearer {session.key}"}
                url = f"{session.endpoint().base_url}/chat/completions"
                async with http.post(url, json={"messages": long}, headers=headers) as got:
                    assert got.status == 200
                await session.close()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        await rollouts(0, 5)
        tracemalloc.start()
        before = await rollouts(10, 5)
        after = await rollouts(20, 60)
        tracemalloc.stop()
    assert after - before < 300_000, "sixty prompts alone have over a megabyte"
