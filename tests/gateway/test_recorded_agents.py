"""The request sequences that real agents sent, replayed through the token tree.

Every request goes through its dialect's parser. Each recorded reply is "sampled" in a tokenisation
of its own; then every prompt must be the ids along its path. The share of turns that bridge is printed for each agent and template (`-s`).
"""

import json
import random
from array import array
from collections import defaultdict
from pathlib import Path

import pytest

from rllm_core.gateway.calls import Call
from rllm_core.gateway.dialects import AnthropicMessages, ChatCompletions, Gemini, Responses
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.gateway.renderers.hermes import call_text
from rllm_core.gateway.tree import TokenTree
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.types import Step

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "agent-requests"
TEMPLATES = ("keep", "strip")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded requests in {DATA}")


PARSERS = {
    "chat": ChatCompletions(),
    "responses": Responses(),
    "anthropic": AnthropicMessages(),
    "gemini": Gemini(),
}
IDS = {"chat": "call_{}", "responses": "call_{}", "anthropic": "toolu_{}", "gemini": "{}"}
"""How the recording server named a call in each format."""


def sessions():
    """Runs in a format that is served, as (agent, requests in order)."""
    for file in sorted(DATA.glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [r for r in rows if r["api"] in PARSERS and r["method"] == "POST"]
        if rows:
            yield file.stem, rows


def reply_message(row) -> dict:
    reply = row["reply"]
    calls = [
        {
            "id": IDS[row["api"]].format(call["id"]),
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in reply.get("calls", ())
    ]
    message = {"role": "assistant", "content": reply.get("text", "")}
    if reply.get("reasoning"):
        message["reasoning_content"] = reply["reasoning"]
    return {**message, "tool_calls": calls} if calls else message


class Replay:
    """One run's tree, fed with what was recorded."""

    def __init__(self, renderer: ChatMLRenderer) -> None:
        self.renderer = renderer
        self.chance = random.Random(0)
        self.tree = TokenTree()
        self.sent: dict[str, array] = {}
        self.turns = self.bridged = 0

    def request(self, row) -> None:
        call: Call = PARSERS[row["api"]].parse(row["body"])
        place = self.tree.place("policy", "policy", call.tools, call.messages)
        said = [m for m in call.messages if m["role"] == "assistant"]
        self.turns += bool(said) and is_known(said[-1], [s.reply for s in self.tree.steps()])
        context = None
        if place.parent is not None:
            context = self.renderer.extension(place.parent.step.output_ids, place.fresh)
        if context is None:
            place = place.as_root()
            context = self.renderer.render_ids(
                call.messages, tools=call.tools, add_generation_prompt=True
            )
        else:
            self.bridged += 1
        slot, _ = self.tree.begin(place)
        if row["status"] != 200:
            self.tree.cancel(place, slot)
            return
        self.sample(row, place, slot, context)

    def sample(self, row, place, slot, context) -> None:
        message = reply_message(row)
        text = "\n".join([message["content"], *map(call_text, message.get("tool_calls", ()))])
        if message.get("reasoning_content"):
            text = f"<think>\n{message['reasoning_content']}\n</think>\n\n{text}"
        ids = self.renderer.tokenizer.segment(text, self.chance)
        ids += self.renderer.get_stop_token_ids()
        step = Step(
            f"c{row['seq']}",
            reply=message,
            context_ids=context,
            output_ids=ids,
            logprobs=[-1.0] * len(ids),
        )
        self.tree.add(place, slot, step, self.renderer)
        self.sent[step.id] = self.tree.sequence(place.parent) + array("i", context)

    def check(self) -> None:
        steps = {step.id: step for step in self.tree.steps()}
        for step in steps.values():
            ids, node = step.context_ids, step
            while node.parent is not None:
                node = steps[node.parent]
                ids = node.context_ids + node.output_ids + ids
            assert ids == self.sent[step.id]


def is_known(message, replies) -> bool:
    """Whether an assistant message is one of the recorded replies, by id or by text."""
    ids = {call["id"] for call in message.get("tool_calls") or ()}
    if ids:
        return any(ids & {c["id"] for c in r.get("tool_calls") or ()} for r in replies)
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    texts = [r["content"] for r in replies if not r.get("tool_calls")]
    return bool(content) and content in texts


REWRITTEN = {"opencode-ctx": (1, 41), "pi-ctx": (1, 2), "gemini-empty": (0, 1)}
"""Runs whose agents rewrote their history: every other turn of an append-only template bridges."""


@pytest.mark.parametrize("thinking", TEMPLATES)
def test_every_recorded_run_keeps_the_invariant(thinking):
    shares = defaultdict(lambda: [0, 0])
    lost = {}
    for name, rows in sessions():
        replay = Replay(ChatMLRenderer(AmbiguousTokenizer(), thinking=thinking))
        for row in rows:
            replay.request(row)
        replay.check()
        agent = name.split("-")[0]
        shares[agent][0] += replay.bridged
        shares[agent][1] += replay.turns
        if replay.bridged < replay.turns:
            lost[name] = (replay.bridged, replay.turns)
    print(f"\nturns that bridge, template {thinking}:")
    for agent, (bridged, turns) in sorted(shares.items()):
        print(f"  {agent:12} {bridged}/{turns}")
    print("  not all:", lost)
    if thinking == "keep":
        assert lost == REWRITTEN
