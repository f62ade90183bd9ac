"""A vLLM-style server as a token upstream: what is asked, what comes back, and its faults."""

import asyncio
from array import array

import pytest

from rllm_core.errors import ConfigError, ModelError
from rllm_core.testing.completions_server import CompletionsReply, CompletionsServer, logprob_of
from rllm_core.upstream import SamplingParams, TokenPrompt
from rllm_core.upstream.completions import CompletionsUpstream
from rllm_core.upstream.faults import WorkerFault

PROMPT = TokenPrompt(array("i", [10, 11, 12]), "s")
PLAIN = SamplingParams()


async def one(upstream, params=PLAIN):
    (piece,) = [piece async for piece in upstream.sample(PROMPT, params)]
    return piece


@pytest.fixture
async def connected():
    """Start a server with these replies, and connect to it."""
    open_ones = []

    async def connect(*replies, **options):
        server = await CompletionsServer(replies).__aenter__()
        upstream = await CompletionsUpstream.connect(server.base_url, **options)
        open_ones.append((upstream, server))
        return upstream, server

    yield connect
    for upstream, server in open_ones:
        await upstream.close()
        await server.__aexit__()


async def test_what_is_asked_and_what_comes_back(connected):
    upstream, server = await connected(CompletionsReply([5, 7]), version=3)
    assert (upstream.model, upstream.context_window) == ("tiny", 8192)
    params = SamplingParams(1.0, 0.9, 20, 64, stop_token_ids=(2,), stop=("END",), seed=9)
    piece = await one(upstream, params)
    assert (piece.ids.tolist(), piece.version, piece.finish) == ([5, 7], 3, "stop")
    assert piece.logprobs.tolist() == [logprob_of(5), logprob_of(7)]
    assert piece.doubt is None
    assert server.bodies == [
        {
            "model": "tiny", "prompt": [10, 11, 12], "max_tokens": 64, "temperature": 1.0,
            "top_p": 0.9, "top_k": 20, "stop_token_ids": [2], "stop": ["END"], "seed": 9,
            "logprobs": 1, "return_token_ids": True,
        }
    ]  # fmt: skip
    scored = await upstream.score(PROMPT)
    assert scored.tolist() == [0.0, logprob_of(11), logprob_of(12)]


DOUBTS = {
    "usage says": (CompletionsReply([5, 7], usage_error=1), SamplingParams()),
    "2 token ids, 1 logprobs": (CompletionsReply([5, 7], drop_logprobs=1), SamplingParams()),
    "sampled at another": (CompletionsReply([5, 7]), SamplingParams(temperature=0.5)),
}


@pytest.mark.parametrize("sentence", DOUBTS)
async def test_a_doubtful_sample_is_kept_and_marked(connected, sentence):
    reply, params = DOUBTS[sentence]
    upstream, _ = await connected(reply)
    piece = await one(upstream, params)
    assert piece.ids.tolist() == [5, 7]
    assert sentence in piece.doubt


async def test_processed_logprobs_are_trusted_at_any_temperature(connected):
    upstream, _ = await connected(CompletionsReply(), processed_logprobs=True)
    assert (await one(upstream, SamplingParams(temperature=0.5))).doubt is None


WRONG = {
    "gave no token ids": CompletionsReply(without_ids=True),
    "changed the prompt": CompletionsReply(prompt_shift=1),
    "no JSON object": CompletionsReply(malformed=True, body='{"choices": [{"te'),
    "without a choice": CompletionsReply(malformed=True, body="{}"),
    "answered 400": CompletionsReply(status=400),
}


@pytest.mark.parametrize("sentence", WRONG)
async def test_a_wrong_answer_is_an_error_that_no_other_try_mends(connected, sentence):
    upstream, _ = await connected(WRONG[sentence])
    with pytest.raises(ModelError, match=sentence) as raised:
        await one(upstream)
    assert not isinstance(raised.value, WorkerFault)


@pytest.mark.parametrize(
    ("reply", "after"),
    [
        (CompletionsReply(status=429, retry_after="7"), 7.0),
        (CompletionsReply(status=503, retry_after="soon"), None),
        (CompletionsReply(cut=True), None),
    ],
)
async def test_faults_of_transport_are_told_apart(connected, reply, after):
    upstream, _ = await connected(reply)
    with pytest.raises(WorkerFault) as raised:
        await one(upstream)
    assert (raised.value.retry_after, raised.value.unwell) == (after, True)


async def test_a_silent_server_is_given_up_and_an_abandoned_call_aborted(connected):
    upstream, server = await connected(CompletionsReply(hang=30), timeout=0.2)
    with pytest.raises(ModelError, match=r"no answer within 0\.2 s"):
        await one(upstream)
    upstream.timeout = 30
    task = asyncio.ensure_future(one(upstream))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    for _ in range(100):
        if server.aborted == 2:
            break
        await asyncio.sleep(0.02)
    assert server.aborted == 2


async def test_connecting_says_what_is_wrong():
    async with CompletionsServer(window=None) as server:
        with pytest.raises(ConfigError, match="does not say how many tokens"):
            await CompletionsUpstream.connect(server.base_url)
        with pytest.raises(ConfigError, match="does not serve other"):
            await CompletionsUpstream.connect(server.base_url, "other")
        upstream = await CompletionsUpstream.connect(server.base_url, context_window=64)
        assert await upstream.healthy()
        server.healthy = False
        assert not await upstream.healthy()
        await upstream.close()
    with pytest.raises(ConfigError, match="no completions server"):
        await CompletionsUpstream.connect(server.base_url)
