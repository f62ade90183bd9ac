"""What was recorded comes back exactly, offline: tokens, replies, refusals and faults."""

import asyncio
import json
import os
import sys
from array import array

import pytest
from attrs import evolve
from openai import APIError

from rllm_core.errors import ConfigError, InfraError, ModelError
from rllm_core.gateway import Gateway
from rllm_core.store import RunStore
from rllm_core.testing.upstream import Reply, ScriptedUpstream
from rllm_core.testing.wire_server import WireReply, WireServer
from rllm_core.upstream import SamplingParams, TokenPrompt, WireUpstream
from rllm_core.upstream.cassette import CASSETTE, Player, Recorder

PROMPT = TokenPrompt(array("i", [1, 2, 3]), "s")


class Codec:
    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode()

    def get_stop_token_ids(self):
        return [0]


async def heard(upstream, seed, prompt=PROMPT):
    """The pieces of a sample, and the error that ended it."""
    pieces = []
    try:
        async for piece in upstream.sample(prompt, SamplingParams(seed=seed)):
            pieces.append(piece)
    except (InfraError, ModelError) as error:
        return pieces, (type(error), error.message)
    return pieces, None


async def test_samples_scores_and_errors_of_a_token_upstream(tmp_path):
    replies = ["one", "two", "three", Reply("broken", error=InfraError("it died"), fail_after=2)]
    live = ScriptedUpstream(replies, Codec(), piece=2, versions=(4, 5))
    recorder = Recorder(tmp_path / CASSETTE)
    recording = recorder.wrap("policy", live)
    asked = (7, 7, 8, 9)  # the same question twice, then two others
    before = [await heard(recording, seed) for seed in asked]
    scored = await recording.score(PROMPT)
    recorder.close()
    with (tmp_path / CASSETTE).open("a") as file:
        file.write('{"key": "torn')  # what a killed run leaves

    silent = ScriptedUpstream([AssertionError("asked")], Codec())
    player = Player(tmp_path / CASSETTE)
    played = player.wrap("policy", silent)
    assert [await heard(played, seed) for seed in asked] == before
    assert before[-1][1] == (InfraError, "it died")
    assert await played.score(PROMPT) == scored
    others = (TokenPrompt(array("i", [1, 2]), "s"), evolve(PROMPT, session="t"))
    for prompt in others:
        _, (kind, message) = await heard(played, 7, prompt)
        assert kind is ModelError
        assert "no answer to this call" in message
    _, error = await heard(player.wrap("judge", silent), 7)
    assert error[0] is ModelError
    assert not silent.seen
    player.close()


def test_a_missing_recording_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no recording"):
        Player(tmp_path / CASSETTE)


REPLIES = [
    WireReply("yes", reasoning="hm"),
    WireReply(status=503, retry_after="0"),
    WireReply("", tool_calls=[("look", '{"at": 1}')]),
    WireReply(status=400, body="this model's maximum context length is 8"),
    WireReply(status=400, body="no such parameter"),
    WireReply(status=401, body="who are you"),
]


async def rollout(tape, base_url, client_of):
    """Five calls of one session, streamed and not: what the agent saw, and the record."""
    gateway = Gateway(tape=tape)
    await gateway.start()
    gateway.route("policy", WireUpstream(base_url, "m", token_ids=True))
    session = gateway.open("e-0-0", sampling={"temperature": 0.5})
    client, seen = client_of(session.endpoint()), []
    for number in range(5):
        messages = [{"role": "user", "content": f"call {number}"}]
        try:
            reply = await client.chat.completions.create(model="policy", messages=messages)
            seen.append(reply.choices[0].message.model_dump())
        except APIError as error:
            seen.append((error.status_code, error.body))
    record = await session.close()
    await gateway.close()
    errors = [(e.category, e.message) for e in record.errors]
    steps = [evolve(step, started=0, seconds=0) for step in record.steps]
    return seen, steps, record.stop, errors, dict(record.counts)


async def test_a_servers_replies_refusals_and_faults(tmp_path, client_of):
    async with WireServer(REPLIES) as server:
        recorder = Recorder(tmp_path / CASSETTE)
        before = await rollout(recorder, server.base_url, client_of)
        recorder.close()
    assert before[4]["retried transport faults"] == 1
    assert [type(each) for each in before[0]] == [dict, dict, tuple, tuple, tuple]
    player = Player(tmp_path / CASSETTE)
    assert await rollout(player, server.base_url, client_of) == before  # the server is gone
    player.close()


def episodes(directory):
    reader = RunStore.read(directory)
    found = []
    for each in reader.episodes():
        trajectories = tuple(
            evolve(t, steps=tuple(evolve(s, started=0, seconds=0) for s in t.steps))
            for t in each.trajectories
        )
        found.append(evolve(each, trajectories=trajectories, started=0, seconds=0))
    reader.close()
    return sorted(found, key=lambda each: each.id)


async def test_a_replayed_evaluation_has_the_same_episodes(tmp_path):
    pytest.importorskip("rllm_benchmark_arithmetic")

    async def evaluate(name, *flags):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rllm_core.cli", "eval", "arithmetic", "--max", "6",
            "--attempts", "2", "--model", "m", "--base-url", server.base_url,
            "--run-dir", str(tmp_path / name), "--json", *flags,
            env={**os.environ, "RLLM_HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, stderr.decode()
        return json.loads(stdout)

    answers = iter(range(1000))
    async with WireServer(lambda _: f"#### {next(answers)}") as server:
        told = await evaluate("live", "--record")
    replayed = await evaluate("again", "--replay", str(tmp_path / "live"))
    assert episodes(tmp_path / "again") == episodes(tmp_path / "live")
    results = [each["results"]["arithmetic"]["accuracy"] for each in (told, replayed)]
    assert results[0] == results[1]
    assert not (tmp_path / "again" / CASSETTE).exists()
