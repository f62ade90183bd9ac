"""Gemini, as the official client sees it, over token and wire upstreams."""

import json

import aiohttp
import pytest

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.testing.wire_server import WireReply, WireServer
from rllm_core.types import Stop
from rllm_core.upstream import WireUpstream

genai = pytest.importorskip("google.genai", reason="needs Google's client: the test extra")
errors, types = genai.errors, genai.types

# google-genai derives its own session class from aiohttp's.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'
ADD = types.FunctionDeclaration(
    name="add",
    description="",
    parameters=types.Schema(
        type="OBJECT",
        properties={"a": types.Schema(type="INTEGER", nullable=True)},
    ),
)
TOOLS = [types.Tool(function_declarations=[ADD])]


@pytest.fixture
async def gemini():
    """Makes official clients for a session."""
    clients = []

    def make(session, *, base="", key=""):
        base = base or session.endpoint().base_url.removesuffix("/v1")
        options = types.HttpOptions(base_url=base, timeout=20_000)
        clients.append(genai.Client(api_key=key or session.key, http_options=options))
        return clients[-1].aio

    yield make
    for client in clients:
        await client.aio.aclose()
        client.close()


def config(**fields):
    off = types.AutomaticFunctionCallingConfig(disable=True)
    return types.GenerateContentConfig(automatic_function_calling=off, **fields)


async def ask(client, stream: bool, contents, **fields):
    """One reply, whole or put together from a stream: its last response with all parts."""
    request = {"model": "policy", "contents": contents, "config": config(**fields)}
    if not stream:
        return await client.models.generate_content(**request)
    parts: list = []
    async for chunk in await client.models.generate_content_stream(**request):
        for candidate in chunk.candidates or ():
            parts += candidate.content.parts
            last = chunk
    last.candidates[0].content.parts = parts
    return last


def parts_of(response) -> list:
    return response.candidates[0].content.parts


def said(response) -> str:
    return "".join(p.text or "" for p in parts_of(response) if not p.thought)


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_is_one_branch(gateway: Gateway, renderer, gemini, stream, ids):
    replies = [f"I will. {CALL % 1}\n{CALL % 2}", CALL % 3, "the thing is 6"]
    upstream = ScriptedUpstream(replies, renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = gemini(session)
    contents = [types.UserContent("hello")]
    while True:
        got = await ask(client, stream, contents, tools=TOOLS, system_instruction="be kind")
        calls = [p.function_call for p in parts_of(got) if p.function_call]
        assert got.usage_metadata.prompt_token_count == len(upstream.seen[-1][0].ids)
        assert got.candidates[0].finish_reason == "STOP"
        if not calls:
            break
        for call in calls if not ids else ():
            call.id = None
        contents.append(types.ModelContent(parts_of(got)))
        answers = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": str(call.args["a"])}
                )
            )
            for call in calls
        ]
        contents.append(types.UserContent(answers))
    assert said(got) == "the thing is 6"
    first, second, third = (await session.close()).steps
    assert (first.parent, second.parent, third.parent) == (None, first.id, second.id)
    assert [m["content"] for m in second.messages] == ["1", "2"]
    if ids:
        named = [c["id"] for c in first.reply["tool_calls"]]
        assert [m["tool_call_id"] for m in second.messages] == named
    prompt = first.context_ids + first.output_ids + second.context_ids
    assert upstream.seen[1][0].ids == prompt


@pytest.mark.parametrize("stream", [False, True])
async def test_a_wire_upstream_is_asked_in_chat_form(gateway: Gateway, gemini, stream):
    called = WireReply("so", "hm", [("add", '{"a": 1}'), ("add", "not json"), ("add", "")])
    async with WireServer([called]) as server:
        gateway.route("policy", WireUpstream(server.base_url, "m"))
        session = gateway.open("s1")
        got = await ask(
            gemini(session),
            stream,
            [types.Part.from_bytes(data=b"hi", mime_type="image/png"), "what is it?"],
            tools=TOOLS,
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(
                    mode="ANY", allowed_function_names=["add"]
                )
            ),
            thinking_config=types.ThinkingConfig(include_thoughts=True),
            temperature=0.5,
            top_p=0.9,
            top_k=7,
            max_output_tokens=100,
            stop_sequences=["END"],
            response_mime_type="application/json",
            response_schema=types.Schema(type="STRING"),
        )
        _, body = server.requests[0]
    thought, text, *calls = parts_of(got)
    assert (thought.text, thought.thought, text.text) == ("hm", True, "so")
    assert [c.function_call.args for c in calls] == [{"a": 1}, {"arguments": "not json"}, {}]
    assert got.usage_metadata.candidates_token_count > 0
    image, question = body["messages"][0]["content"]
    assert image["image_url"]["url"] == "data:image/png;base64,aGk="
    assert question == {"type": "text", "text": "what is it?"}
    assert body["tool_choice"]["function"]["name"] == "add"
    sampling = [body[k] for k in ("temperature", "top_p", "top_k", "max_tokens", "stop")]
    assert sampling == [0.5, 0.9, 7, 100, ["END"]]
    assert body["response_format"]["json_schema"]["schema"] == {"type": "string"}
    assert body["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": ["integer", "null"]}},
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_shown_to_those_who_ask(gateway: Gateway, gemini, stream):
    renderer = ChatMLRenderer(AmbiguousTokenizer(), thinking="keep")
    upstream = ScriptedUpstream(["<think>\nhm\n</think>\n\nyes"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = gemini(session)
    asked = types.ThinkingConfig(include_thoughts=True)
    shown = await ask(client, stream, "a", thinking_config=asked)
    assert [bool(p.thought) for p in parts_of(shown) if p.text] == [True, False]
    hidden = await ask(client, stream, "b")
    assert said(hidden) == "yes"
    assert not any(p.thought for p in parts_of(hidden))
    for reply in (parts_of(shown), [types.Part(text="yes")]):
        turns = [types.UserContent("a"), types.ModelContent(reply), types.UserContent("c")]
        await ask(client, stream, turns)
    steps = (await session.close()).steps
    assert [s.parent for s in steps[2:]] == [steps[0].id] * 2


async def test_how_replies_end(gateway: Gateway, renderer, gemini):
    gateway.route("policy", ScriptedUpstream(["one two three"], renderer), renderer=renderer)
    client = gemini(gateway.open("s1"))
    assert said(await ask(client, False, "a", stop_sequences=["two"])) == "one "
    cut = await ask(client, True, "a", max_output_tokens=1)
    assert cut.candidates[0].finish_reason == "MAX_TOKENS"
    gateway.route("policy", ScriptedUpstream([""], renderer))
    for stream in (False, True):
        silent = await ask(client, stream, "a")
        assert (said(silent), silent.candidates[0].finish_reason) == ("", "STOP")


async def test_logprobs_for_those_who_ask(gateway: Gateway, renderer, gemini):
    gateway.route("policy", ScriptedUpstream(["yes"], renderer), renderer=renderer)
    session = gateway.open("s1")
    got = await ask(gemini(session), False, "a", response_logprobs=True)
    chosen = got.candidates[0].logprobs_result.chosen_candidates
    (step,) = (await session.close()).steps
    assert [c.log_probability for c in chosen] == pytest.approx(list(step.logprobs))


@pytest.mark.parametrize("stream", [False, True])
async def test_overflow_is_geminis_own_error(gateway: Gateway, renderer, gemini, stream):
    upstream = ScriptedUpstream(["x"], renderer, context_window=16)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(errors.ClientError, match=r"exceeds the maximum .* \(16\)") as caught:
        await ask(gemini(session), stream, "so long " * 10)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    assert (await session.close()).stop is Stop.CONTEXT_OVERFLOW


async def test_errors_have_the_apis_own_shape(gateway: Gateway, renderer, gemini):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(errors.ClientError) as caught:
        await ask(gemini(session, key="no"), False, "a")
    assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")
    gateway.route("policy", ScriptedUpstream([RuntimeError("device lost")], renderer))
    with pytest.raises(errors.ServerError, match="device lost") as failed:
        await ask(gemini(session), True, "a")
    assert (failed.value.code, failed.value.status) == (502, "UNAVAILABLE")
    with pytest.raises(errors.ClientError, match="batchEmbedContents"):
        await gemini(session).models.embed_content(model="policy", contents="a")
    await session.close()
    with pytest.raises(errors.ClientError, match="closed"):
        await ask(gemini(session), True, "a")


async def test_an_error_and_signs_of_life_inside_a_stream(renderer, gemini):
    gateway = Gateway(keepalive=0.02)
    await gateway.start()
    slow = ScriptedUpstream([RuntimeError("device lost")], renderer, delay=0.1)
    gateway.route("policy", slow, renderer=renderer)
    session = gateway.open("s1")
    with pytest.raises(errors.APIError, match="device lost"):
        await ask(gemini(session), True, "a")
    gateway.route("policy", ScriptedUpstream(["late"], renderer, delay=0.1))
    assert said(await ask(gemini(session), True, "a")) == "late"
    url = f"{gateway.url}/sessions/s1/v1beta/models/policy:streamGenerateContent"
    body = {"contents": [{"parts": [{"text": "a"}]}]}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}?key={session.key}", json=body) as got,
    ):
        assert got.content_type == "application/json"
        first, last = await got.json()
    assert first["candidates"][0]["content"]["parts"] == [{"text": "late"}]
    assert last["usageMetadata"]["totalTokenCount"] > 0
    await gateway.close()


TEXT = {"contents": [{"parts": [{"text": "a"}]}]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"contents": []}, "at least one content"),
        ({"contents": [{"role": "wizard", "parts": []}]}, "role must be user, model"),
        ({"contents": [{"role": "model", "parts": [{"text": "a"}]}]}, "must end with a user"),
        ({"contents": [{"parts": [{"executableCode": {}}]}]}, "executableCode"),
        ({"contents": [{"parts": [{"inlineData": {"mimeType": "audio/x"}}]}]}, "audio/x"),
        ({"contents": [{"parts": [{"inline_data": {"mime_type": "image/png"}}]}]}, "image_url"),
        ({"tools": [{"googleSearch": {}}]}, "googleSearch"),
        ({"tools": [{"functionDeclarations": [{"name": "a"}]}],
          "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "cannot be forced"),
        ({"generationConfig": {"temperature": "hot"}}, "temperature"),
        ({"generationConfig": {"maxOutputTokens": 0}}, "maxOutputTokens must be"),
        ({"generationConfig": {"candidateCount": 2}}, "candidateCount"),
        ({"generationConfig": {"responseSchema": {"type": "STRING"}}}, "json_schema"),
        ({"generation_config": {"response_mime_type": "application/json"}}, "json_object"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "AUDIO"),
    ],
)  # fmt: skip
async def test_bad_requests_are_400s_that_say_why(gateway, renderer, body, words):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    url = f"{gateway.url}/sessions/s1/v1beta/models/policy:generateContent"
    headers = {"x-goog-api-key": session.key}
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=TEXT | body, headers=headers) as got,
    ):
        error = json.loads(await got.text())["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert words in error["message"]


async def test_token_counts_and_models(gateway: Gateway, renderer, gemini):
    upstream = ScriptedUpstream(["yes"], renderer, context_window=4096)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    client = gemini(session, base=session.endpoint().base_url)  # the client adds a version
    counted = await client.models.count_tokens(model="policy", contents="hello")
    got = await ask(client, False, "hello")
    assert counted.total_tokens == got.usage_metadata.prompt_token_count
    model = await client.models.get(model="policy")
    assert (model.name, model.input_token_limit) == ("models/policy", 4096)
    assert [m.name async for m in await client.models.list()] == ["models/policy"]
    other = await client.models.generate_content(model="gemini-3-flash", contents="hello")
    assert said(other) == "yes"
    record = await session.close()
    assert record.counts["calls that named another model, sent to the default role"] == 1


async def test_responses_without_ids_answer_calls_in_order(gateway: Gateway, renderer, gemini):
    upstream = ScriptedUpstream(["ok"], renderer)
    gateway.route("policy", upstream, renderer=renderer)
    session = gateway.open("s1")
    call, response = types.Part.from_function_call, types.Part.from_function_response
    calls = [call(name=name, args={}) for name in ("one", "two", "one")]
    answers = [
        response(name="two", response={"result": "2"}),
        response(name="one", response={"error": "1 failed"}),
        response(name="one", response={"x": 1}),
    ]
    turns = [types.UserContent("a"), types.ModelContent(calls), types.UserContent(answers)]
    await ask(gemini(session), False, turns, tools=TOOLS)
    (step,) = (await session.close()).steps
    named = {c["id"]: c["function"]["name"] for c in step.messages[1]["tool_calls"]}
    results = step.messages[2:]
    assert [named[r["tool_call_id"]] for r in results] == ["two", "one", "one"]
    assert [r["content"] for r in results] == ["2", "Error: 1 failed", '{"x": 1}']
    assert list(named) == [results[1]["tool_call_id"], results[0]["tool_call_id"], results[2]["tool_call_id"]]  # fmt: skip
