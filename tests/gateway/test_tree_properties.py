"""Whatever agents do, the ids sent upstream are the ids along the path.

Random agents, without a server: interleaved threads, retries, cut turns, rewritten histories,
tool calls sent back changed, over a tokenizer in which texts have many tokenisations.
"""

import asyncio
import json
import random
from array import array

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rllm_core.gateway.calls import Call
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.renderers import CharRenderer, ChatMLRenderer
from rllm_core.gateway.rendering import Rendering
from rllm_core.gateway.routing import Route
from rllm_core.gateway.session import Limits, Session
from rllm_core.gateway.tokens import answer_with_tokens
from rllm_core.gateway.tree import Node
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import Reply, ScriptedUpstream

TOOLS = ({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}},)
CALL = '<tool_call>\n{{"name": "add", "arguments": {{"a": [{0}], "b": "x y"}}}}\n</tool_call>'
TEXTS = ["hello the lo", "thing  in", "", "a\n\nb", "ell <|im_end|> he", "ünïcode", "12"]
TEMPLATES = {
    "chatml": lambda: ChatMLRenderer(AmbiguousTokenizer()),
    "chatml with a default system message": lambda: ChatMLRenderer(
        AmbiguousTokenizer(), default_system="You are the thing."
    ),
    "thinking kept": lambda: ChatMLRenderer(AmbiguousTokenizer(), thinking="keep"),
    "thinking stripped": lambda: ChatMLRenderer(AmbiguousTokenizer(), thinking="strip"),
}


class Thread:
    """One conversation as its agent holds it, and the step that it ended with."""

    def __init__(self, messages, tools, agent):
        self.messages, self.tools, self.agent = messages, tools, agent
        self.last: Node | None = None
        self.intact = False


def spoken(messages) -> list[tuple]:
    """Who said what, but for what assistants said, which comes back changed.

    A text is the same as one part of it: threads that differ in that alone share a branch.
    """
    return [
        (
            m["role"],
            None if m["role"] == "assistant" else plain(m["content"]),
            m.get("tool_call_id"),
        )
        for m in messages
    ]


def plain(content) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class World:
    """A session, its upstream, and the agents' threads."""

    def __init__(self, renderer, seed):
        self.chance = random.Random(seed)
        self.renderer = renderer
        self.upstream = ScriptedUpstream(self.reply, renderer)
        self.route = Route("policy")
        self.route.point(self.upstream, Rendering(renderer), "")
        self.session = Session(
            "s", "", ("policy",), sampling={}, seed=1, limits=Limits(), forget=lambda *_: None
        )
        self.threads: list[Thread] = []
        self.prompts: dict[str, array] = {}
        self.requests: dict[str, list] = {}
        self.tools = False

    def reply(self, _prompt, _params):
        text = self.chance.choice(TEXTS) + self.chance.choice(["", " the end"])
        if isinstance(self.renderer, ChatMLRenderer):
            if self.renderer.thinking != "none" and self.chance.random() < 0.5:
                text = f"<think>\nlo the in\n</think>\n\n{text}"
            if self.tools and self.chance.random() < 0.7:
                text += CALL.format(self.chance.randrange(9)) * self.chance.choice([1, 1, 2])
            ids = self.renderer.tokenizer.segment(text, self.chance)
        else:
            ids = [self.chance.randrange(15) for _ in range(self.chance.randrange(5))]
        if self.chance.random() < 0.8:
            ids += self.renderer.get_stop_token_ids()
        return Reply(ids=ids)

    async def call(self, thread: Thread):
        self.tools = bool(thread.tools)
        call = Call({}, list(thread.messages), thread.tools)
        exchange = Exchange(self.session.admit(), self.session, self.route, thread.agent, call)
        answer, node = await answer_with_tokens(exchange)
        self.prompts[answer.id] = self.upstream.seen[-1][0].ids
        self.requests[answer.id] = list(thread.messages)
        return answer, node

    async def turn(self, thread: Thread):
        """One call whose reply the agent keeps; checks that it continued what it could."""
        before = thread.last if thread.intact else None
        fresh = thread.messages[-1]["role"]
        answer, node = await self.call(thread)
        strips = isinstance(self.renderer, ChatMLRenderer) and self.renderer.thinking == "strip"
        if before is not None and not (strips and fresh == "user"):
            assert node.parent is not None
            assert node.parent.ends & before.ends, "the same conversation, token by token or not"
        thread.messages.append(self.mangled(dict(answer.message)))
        thread.last, thread.intact = node, True

    def mangled(self, message):
        """The reply as some agent sends it back."""
        message.pop(self.chance.choice(["reasoning_content", "nothing"]), None)
        if message.get("tool_calls"):
            calls = json.loads(json.dumps(message["tool_calls"]))
            for call in calls:
                function = call["function"]
                parsed = json.loads(function["arguments"])
                function["arguments"] = json.dumps(parsed, separators=(",", ":"))
                if self.chance.random() < 0.2:
                    function["name"] = "invalid"
            message["tool_calls"] = calls
            message["content"] = self.chance.choice([message["content"], "", None])
        elif self.chance.random() < 0.5 and message["content"]:
            part = {"type": "text", "text": message["content"], "cache_control": {"type": "x"}}
            message["content"] = [part]
        return message

    def user(self):
        text = self.chance.choice(TEXTS[:-2] if self.chatml else ["12+", "3="])
        if self.chatml and self.chance.random() < 0.3:
            return {"role": "user", "content": [{"type": "text", "text": text}]}
        return {"role": "user", "content": text}

    @property
    def chatml(self):
        return isinstance(self.renderer, ChatMLRenderer)

    async def step(self, action: str, which: int):
        if action == "open" or not self.threads:
            tools = TOOLS if self.chatml and which % 2 else ()
            system = [{"role": "system", "content": f"be {which % 3}"}] if self.chatml else []
            few = [self.user(), {"role": "assistant", "content": "ok"}] if which % 5 == 0 else []
            if not self.chatml:
                few = []
            messages = [*system[: which % 2], *few, self.user()]
            self.threads.append(Thread(messages, tools, f"agent{which % 2}"))
            await self.turn(self.threads[-1])
            return
        thread = self.threads[which % len(self.threads)]
        await getattr(self, action)(thread)

    async def go_on(self, thread: Thread):
        calls = thread.messages[-1].get("tool_calls")
        if calls:
            for call in calls:
                result = {"role": "tool", "tool_call_id": call["id"], "content": "thing 3"}
                thread.messages.append(result)
        else:
            thread.messages.append(self.user())
        await self.turn(thread)

    async def lose(self, thread: Thread):
        """The reply never arrives; the agent repeats the call."""
        thread.messages.append(self.user())
        _, node = await self.call(thread)
        self.session.tree.drop(node)
        del self.prompts[node.step.id]
        await self.turn(thread)

    async def again(self, thread: Thread):
        """The same prompt once more, as an agent that votes does."""
        copy = Thread(thread.messages[:-1], thread.tools, thread.agent)
        _, node = await self.call(copy)
        assert node is not thread.last

    async def rewrite(self, thread: Thread):
        """Compaction: an earlier message changes."""
        at = self.chance.randrange(len(thread.messages))
        old = thread.messages[at]
        thread.messages[at] = {"role": "user", "content": "11+" if not self.chatml else "summary"}
        thread.messages = thread.messages[at:]
        if thread.messages[-1]["role"] != "user" or old["role"] == "user":
            thread.messages.append(self.user())
        thread.intact = False
        await self.turn(thread)

    def check(self):
        steps = {s.id: s for s in self.session.tree.steps()}
        assert set(steps) == set(self.prompts)
        for step in steps.values():
            prefix, told, node = step.context_ids, list(step.messages), step
            while node.parent is not None:
                node = steps[node.parent]
                prefix = node.context_ids + node.output_ids + prefix
                told = [*node.messages, node.reply, *told]
            assert prefix == self.prompts[step.id]
            assert spoken(told) == spoken(self.requests[step.id])
            assert len(step.logprobs) == len(step.output_ids)
            assert sum(v.end - v.start for v in step.versions) == len(step.output_ids)
            if step.parent is None:
                continue
            parent = steps[step.parent]
            assert not any(m["role"] == "assistant" for m in step.messages)
            assert (parent.agent, parent.role) == (step.agent, step.role)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "go_on", "go_on", "go_on", "lose", "again", "rewrite"]),
        st.integers(0, 29),
    ),
    min_size=1,
    max_size=14,
)


_SHARED = ["open", "again", "open", "open", "go_on", "open", "open", "lose"]
"""Two threads that differ in the form of one text only."""


@pytest.mark.parametrize("template", [*TEMPLATES, "char"])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS, seed=st.integers(0, 2**20))
@example([*zip(_SHARED, [2, 0, 1, 1, 1, 2, 0, 8], strict=True)], 122)
def test_ids_sent_are_the_ids_along_the_path(template, actions, seed):
    renderer = CharRenderer() if template == "char" else TEMPLATES[template]()

    async def play():
        world = World(renderer, seed)
        for action, which in actions:
            await world.step(action, which)
        world.check()

    asyncio.run(play())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.integers(0, 2**20))
def test_a_bridged_prompt_reads_like_a_rendered_one(texts, seed):
    """The text of an extended prompt is the text of the same conversation rendered whole."""
    renderer = ChatMLRenderer(AmbiguousTokenizer())
    chance = random.Random(seed)
    messages = [{"role": "user", "content": "the first"}]
    prompt = renderer.render_ids(messages, add_generation_prompt=True)
    for text in texts:
        ids = renderer.tokenizer.segment(text, chance)
        ids += renderer.get_stop_token_ids()[: chance.randrange(2)]
        new = [{"role": chance.choice(["user", "tool"]), "content": chance.choice(TEXTS)}]
        prompt = renderer.bridge_to_next_turn(prompt, ids, new).token_ids
        messages += [{"role": "assistant", "content": text}, *new]
    whole = renderer.render_ids(messages, add_generation_prompt=True)
    assert renderer.decode(prompt) == renderer.decode(whole)
