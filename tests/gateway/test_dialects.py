"""What holds for every dialect: a stream says what a whole reply says; no request breaks it."""

import asyncio
import copy
import itertools
import json
import random

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_core.gateway import Gateway
from rllm_core.gateway.calls import Answer, Call, Delta, Refusal, ToolForm
from rllm_core.gateway.dialects import AnthropicMessages, ChatCompletions, Gemini, Responses
from rllm_core.gateway.dialects.incoming import chat_call
from rllm_core.gateway.dialects.outgoing import deltas_of
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.types import Usage

STREAM = "streamGenerateContent"
DIALECTS = {
    "chat": ChatCompletions(),
    "responses": Responses(),
    "anthropic": AnthropicMessages(),
    "gemini events": Gemini("policy", STREAM),
    "gemini array": Gemini("policy", STREAM, events=False),
}


# -- a stream says what a whole reply says


def events(data: bytes) -> list[dict]:
    if data.startswith(b"["):
        return json.loads(data)
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def gathered_chat(chunks: list[dict]) -> dict:
    message: dict = {"role": "assistant"}
    calls: list[dict] = []
    for choice in (c["choices"][0] for c in chunks if c["choices"]):
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            if delta.get(key) is not None:
                message[key] = message.get(key, "") + delta[key]
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                calls.append(copy.deepcopy(part))
                del calls[-1]["index"]
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        finish = choice["finish_reason"]
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return {"message": message, "finish": finish}


def whole_chat(body: dict) -> dict:
    (choice,) = body["choices"]
    return {"message": choice["message"], "finish": choice["finish_reason"]}


def gathered_anthropic(chunks: list[dict]) -> dict:
    message: dict = {}
    for event in chunks:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                for key in ("text", "thinking", "signature"):
                    if key in delta:
                        block[key] += delta[key]
                if "partial_json" in delta:
                    block["input"] = json.loads(delta["partial_json"])
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    assert chunks[-1]["type"] == "message_stop"
    opened, closed = (
        [e["index"] for e in chunks if e["type"] == f"content_block_{what}"]
        for what in ("start", "stop")
    )
    assert opened == closed == list(range(len(opened)))
    return message


def gathered_responses(chunks: list[dict]) -> dict:
    """The last event's response, which all events before it must amount to."""
    items: list[dict] = []
    for number, event in enumerate(chunks):
        kind = event["type"].removeprefix("response.")
        assert event["sequence_number"] == number
        if "output_index" not in event:
            continue
        match kind.split("."):
            case ["output_item", "added"]:
                assert event["output_index"] == len(items)
                items.append(event["item"])
            case ["content_part" | "reasoning_summary_part", "added"]:
                items[-1].setdefault("summary", []).append(event["part"])
                items[-1]["so far"] = ""
            case [_, "delta"]:
                items[-1]["so far"] = items[-1].get("so far", "") + event["delta"]
            case [what, "done"] if what not in ("output_item", "content_part"):
                if "part" not in event:
                    said = {event.get(key) for key in ("text", "arguments", "input")}
                    assert items[-1]["so far"] in said
            case ["output_item", "done"]:
                assert event["output_index"] == len(items) - 1
                assert event["item"]["id"] == items[-1]["id"]
                items[-1] = event["item"]
    response = chunks[-1]["response"]
    assert response["output"] == items
    return response


def joined(parts: list[dict]) -> list[dict]:
    """Gemini's parts, with neighbouring texts of one kind as one."""
    out: list[dict] = []
    for part in parts:
        last = out[-1] if out else {}
        if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
            last["text"] += part["text"]
        else:
            out.append(dict(part))
    return out


def gathered_gemini(chunks: list[dict]) -> dict:
    parts = [p for c in chunks for p in c["candidates"][0]["content"]["parts"]]
    chunks[-1]["candidates"][0]["content"]["parts"] = joined(parts)
    return chunks[-1]


def whole_gemini(body: dict) -> dict:
    return gathered_gemini([body])


GATHER = {
    "chat": (gathered_chat, whole_chat),
    "responses": (gathered_responses, lambda body: body),
    "anthropic": (gathered_anthropic, lambda body: body),
    "gemini events": (gathered_gemini, whole_gemini),
    "gemini array": (gathered_gemini, whole_gemini),
}

texts = st.text(max_size=12)
tool_calls = st.lists(
    st.builds(
        chat_call,
        st.uuids().map(str),
        st.sampled_from(["add", "bash"]),
        st.dictionaries(texts, texts | st.integers(), max_size=2),
    ),
    max_size=3,
)


@st.composite
def answers(draw) -> Answer:
    calls = draw(tool_calls)
    content = draw(texts)
    message: dict = {"role": "assistant", "content": content}
    reasoning = draw(texts)
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message |= {"content": content or None, "tool_calls": calls}
    finish = "tool_calls" if calls else draw(st.sampled_from(["stop", "length"]))
    return Answer("c1", "policy", 0, message, finish, Usage(7, 9))


def pieces(delta: Delta, chance: random.Random) -> list[Delta]:
    """A delta cut into several, as a sampler might bring it."""
    cuts = sorted(chance.choices(range(len(delta.text) + 1), k=chance.randrange(4)))
    bounds = [0, *cuts, len(delta.text)]
    parts = [delta.text[a:b] for a, b in itertools.pairwise(bounds)]
    first = Delta(delta.kind, parts[0], delta.index, delta.call_id, delta.name)
    return [first, *(Delta(delta.kind, part, delta.index) for part in parts[1:])]


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=100, deadline=None)
@given(answer=answers(), shown=st.booleans(), chance=st.randoms(use_true_random=False))
def test_a_stream_says_what_a_whole_reply_says(name, answer, shown, chance):
    dialect = DIALECTS[name]
    gather, whole = GATHER[name]
    forms = {"bash": ToolForm("custom", "sh", "box")}
    call = Call({}, [], show_reasoning=shown, tool_forms=forms)
    form = dialect.stream(call, answer.id, answer.model)
    data = form.start(chance.choice([None, answer.usage]))
    for delta in deltas_of(answer.message):
        data += b"".join(form.delta(piece) for piece in pieces(delta, chance))
    data += form.finish(answer)
    expected = json.loads(json.dumps(dialect.reply(call, answer)))
    assert gather(events(data)) == whole(expected)


# -- no request breaks it

CHAT = {
    "model": "policy",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": "b", "name": "c"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "d",
            "tool_calls": [
                {"id": "e", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "e", "content": "g"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "stop": ["x"],
    "temperature": 1.0,
    "top_p": 0.5,
    "top_k": 3,
    "max_tokens": 9,
    "seed": 1,
    "n": 1,
    "logprobs": True,
    "top_logprobs": 0,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "text"},
}
ANTHROPIC = {
    "model": "policy",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "b"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "c", "signature": "s"},
                {"type": "redacted_thinking", "data": "s"},
                {"type": "text", "text": "d"},
                {"type": "tool_use", "id": "e", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "system", "content": "now"},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "e",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "g"},
                        {"type": "tool_reference", "tool_name": "f"},
                        {"type": "document", "source": {"type": "text", "data": "h"}},
                    ],
                },
                {"type": "text", "text": "i"},
            ],
        },
    ],
    "tools": [{"type": "custom", "name": "f", "description": "j", "input_schema": {}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive"},
    "stop_sequences": ["x"],
    "temperature": 1.0,
    "top_p": 0.5,
    "top_k": 3,
    "output_config": {"effort": "low", "format": None},
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "a"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "b"}]},
        {
            "role": "model",
            "parts": [
                {"text": "c", "thought": True, "thoughtSignature": "s"},
                {"text": "d"},
                {"functionCall": {"id": "e", "name": "f", "args": {"a": 1}}},
                {"function_call": {"name": "f"}},
            ],
        },
        {
            "role": "function",
            "parts": [
                {"functionResponse": {"id": "e", "name": "f", "response": {"output": "g"}}},
                {"functionResponse": {"name": "f", "response": {"h": 1}, "parts": []}},
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "description": "i",
                    "parameters": {
                        "type": "OBJECT",
                        "nullable": True,
                        "properties": {"a": {"type": "ARRAY", "items": {"anyOf": []}}},
                    },
                },
                {"name": "g", "parametersJsonSchema": {"type": "object"}},
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": []}},
    "generationConfig": {
        "temperature": 1,
        "topP": 0.5,
        "topK": 3,
        "maxOutputTokens": 9,
        "stopSequences": ["x"],
        "seed": 1,
        "candidateCount": 1,
        "responseLogprobs": True,
        "thinkingConfig": {"includeThoughts": True},
        "responseModalities": ["TEXT"],
        "responseMimeType": "text/plain",
    },
}
COMPLETIONS = {
    "model": "policy",
    "prompt": ["one two"],
    "max_tokens": 9,
    "stop": ["x"],
    "logprobs": 1,
    "echo": False,
    "return_token_ids": True,
    "stream_options": {"include_usage": True},
}
RESPONSES = {
    "model": "policy",
    "instructions": "a",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "d"}],
            "content": [{"type": "reasoning_text", "text": "d"}],
            "encrypted_content": "rllm:ZA==",
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "e"}]},
        {"type": "function_call", "call_id": "f", "name": "g", "arguments": "{}", "namespace": "n"},
        {"type": "custom_tool_call", "call_id": "h", "name": "i", "input": "j"},
        {
            "type": "local_shell_call",
            "call_id": "k",
            "action": {"type": "exec", "command": ["l"], "env": {}},
        },
        {"type": "function_call_output", "call_id": "f", "output": "m"},
        {
            "type": "custom_tool_call_output",
            "call_id": "h",
            "output": [{"type": "input_text", "text": "o"}],
        },
        {"type": "local_shell_call_output", "id": "k", "output": "p"},
        {"type": "additional_tools", "role": "developer", "tools": []},
    ],
    "tools": [
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
        {
            "type": "custom",
            "name": "i",
            "format": {"type": "grammar", "syntax": "lark", "definition": "q"},
        },
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "max_output_tokens": 9,
    "temperature": 1.0,
    "top_p": 0.5,
    "store": False,
    "metadata": {},
    "client_metadata": {},
    "prompt_cache_key": "r",
    "truncation": "disabled",
}
PATHS = {
    "chat": ("/v1/chat/completions", CHAT),
    "completions": ("/v1/completions", COMPLETIONS),
    "completions ids": ("/v1/completions", {**COMPLETIONS, "prompt": [1, 2]}),
    "responses": ("/v1/responses", RESPONSES),
    "anthropic": ("/v1/messages", ANTHROPIC),
    "anthropic count": ("/v1/messages/count_tokens", ANTHROPIC),
    "gemini": ("/v1beta/models/policy:generateContent", GEMINI),
    "gemini stream": ("/v1beta/models/policy:streamGenerateContent?alt=sse", GEMINI),
    "gemini count": ("/v1beta/models/policy:countTokens", {"generateContentRequest": GEMINI}),
}

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@st.composite
def spoilt(draw, body):
    """A body, with something in it replaced, removed or added."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        here = body
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            key = draw(st.sampled_from(keys)) if keys else draw(st.text(max_size=5))
            deeper = bool(keys) and isinstance(here[key], (dict, list)) and bool(here[key])
            if not deeper or draw(st.integers(0, 5)) == 0:
                break
            here = here[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "remove" if keys:
                del here[key]
            case "add" if isinstance(here, dict):
                here[draw(st.text(max_size=8))] = draw(junk)
            case _ if keys or isinstance(here, dict):
                here[key] = draw(junk)
        if not body:
            break
    return body


def says_what_is_wrong(name: str, status: int, text: str) -> bool:
    """Whether an error has its dialect's shape, and a sentence."""
    body = json.loads(text)
    error = body["error"]
    if name.startswith("anthropic"):
        return body["type"] == "error" and bool(error["type"] and error["message"])
    if name.startswith("gemini"):
        return error["code"] == status and bool(error["status"] and error["message"])
    return bool(error["type"] and error["message"])


@pytest.mark.parametrize("name", PATHS)
async def test_odd_requests_never_break_the_gateway(gateway: Gateway, renderer, name):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    path, valid = PATHS[name]
    url = f"{gateway.url}/sessions/s1{path}"
    loop = asyncio.get_running_loop()
    headers = {"Authorization": f"Bearer {session.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:

        async def send(body) -> tuple[int, str]:
            async with http.post(url, json=body) as got:
                return got.status, await got.text()

        assert (await send(valid))[0] == 200, "what is spoilt below is valid"

        @settings(max_examples=80, deadline=None)
        @given(spoilt(valid))
        def fuzz(body):
            status, text = asyncio.run_coroutine_threadsafe(send(body), loop).result(20)
            assert status in (200, 400), text
            assert status == 200 or says_what_is_wrong(name, status, text)

        await asyncio.to_thread(fuzz)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b"{}"])
async def test_malformed_bodies_get_the_dialects_own_400(gateway, renderer, name, body):
    gateway.route("policy", ScriptedUpstream(["x"], renderer), renderer=renderer)
    session = gateway.open("s1")
    url = f"{gateway.url}/sessions/s1{PATHS[name][0]}"
    headers = {"Authorization": f"Bearer {session.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(url, data=body) as got,
    ):
        assert got.status == 400
        assert says_what_is_wrong(name, 400, await got.text())


BODIES = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini events": GEMINI}


@settings(max_examples=500, deadline=None)
@given(data=st.data(), name=st.sampled_from([*BODIES]))
def test_a_parser_gives_a_call_or_says_why_not(data, name):
    body = data.draw(junk | spoilt(BODIES[name]))
    refused = None
    try:
        call = DIALECTS[name].parse(body)
    except Refusal as refusal:
        refused = refusal
    assert call.messages if refused is None else (refused.status == 400 and refused.message)
