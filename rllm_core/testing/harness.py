"""What every harness must keep to, as tests: subclass `HarnessConformance`.

The harness runs as in a real rollout: over HTTP, against a gateway that records it, in front of a
scripted model. It must answer from what the model said, end in time, report the model's failures
instead of inventing an output, keep its key to itself, and not mix rollouts up.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from attrs import field, frozen

from rllm_core.gateway import Gateway, SessionRecord
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.harness import Harness, Outcome, RolloutContext
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import Reply, Script, ScriptedUpstream
from rllm_core.types import Step, Task, Tool

__all__ = ["HarnessConformance", "Played", "add"]

TASK = Task.of("How much is 2 + 2?", id="conformance", private={"answer": "4711"})
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
Replies = Sequence[str | Reply | Exception] | Script


def add(a: int, b: int) -> int:
    """The tool that the tests offer."""
    return a + b


ADD = Tool(
    "add",
    "Add two whole numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    function=f"{__name__}:add",
)


@frozen
class Played:
    """One rollout: what the harness said, or raised, and what the gateway recorded."""

    outcome: Outcome
    error: Exception | None
    record: SessionRecord
    key: str = field(repr=False)
    seconds: float = 0.0

    @property
    def output(self) -> str:
        """The output that the engine would score."""
        if self.outcome.output is not None:
            return self.outcome.output
        return self.record.steps[-1].output if self.record.steps else ""

    @property
    def steps(self) -> Sequence[Step]:
        """The recorded calls."""
        return self.record.steps


class HarnessConformance:
    """Subclass it, set `harness`, and pytest collects the tests."""

    harness: ClassVar[type[Harness]]
    options: ClassVar[Mapping[str, Any]] = {}
    seconds: ClassVar[float] = 20.0
    """Time that one rollout may take, on a slow machine."""
    grace: ClassVar[float] = 5.0
    """Time that the harness may take to end after its deadline."""

    def make(self) -> Harness:
        """The harness under test."""
        return self.harness(self.harness.Options(**self.options))

    @asynccontextmanager
    async def gateway(self, replies: Replies, delay: float = 0.0) -> AsyncIterator[Gateway]:
        """A gateway whose role `policy` answers with these replies."""
        renderer = ChatMLRenderer(AmbiguousTokenizer())
        gateway = Gateway()
        await gateway.start()
        upstream = ScriptedUpstream(replies, renderer, delay=delay)
        gateway.route("policy", upstream, renderer=renderer, model="scripted")
        try:
            yield gateway
        finally:
            await gateway.close()

    async def play(
        self, gateway: Gateway, task: Task = TASK, *, name: str = "s", seconds: float | None = None
    ) -> Played:
        """One rollout, bounded as the engine bounds it."""
        limit = seconds or self.seconds
        begun = time.monotonic()
        session = gateway.open(name, deadline=begun + limit)
        ctx = RolloutContext(session.endpoint, deadline=begun + limit)
        outcome, error = Outcome(), None
        try:
            async with asyncio.timeout(limit):
                outcome = await self.make().run(task.public(), ctx)
        except Exception as raised:  # noqa: BLE001 - what the engine would record
            error = raised
        took = time.monotonic() - begun
        return Played(outcome, error, await session.close(), session.key, took)

    async def test_it_answers_with_what_the_model_said(self) -> None:
        """Every call is recorded, with the task in its prompt."""
        async with self.gateway(["It is 4."]) as gateway:
            played = await self.play(gateway)
        assert played.error is None
        assert "It is 4." in played.output
        assert any(TASK.text in str(step.messages) for step in played.steps)

    async def test_its_calls_can_be_trained_on(self) -> None:
        """Each has the sampler's own tokens and logprobs."""
        async with self.gateway(["It is 4."]) as gateway:
            played = await self.play(gateway)
        assert all(step.untrainable is None for step in played.steps)
        assert all(len(step.output_ids) == len(step.logprobs) > 0 for step in played.steps)

    async def test_any_text_passes_unharmed(self) -> None:
        """Scripts, quotes, line ends and what looks like shell or markup."""
        text = 'Größe “日本語” 🙂 $HOME `ls` \\n "x"\n<b>&amp;</b> {{x}} %s'
        async with self.gateway([f"Said: {text}"]) as gateway:
            played = await self.play(gateway, Task.of(text, id="unicode"))
        assert played.error is None
        assert played.output.strip() == f"Said: {text}"
        assert any(text in message.get("content", "") for message in played.steps[0].messages)

    async def test_an_empty_answer_is_an_answer(self) -> None:
        """It is scored as such; it is no failure of the agent."""
        async with self.gateway([""]) as gateway:
            played = await self.play(gateway)
        assert played.error is None
        assert played.output.strip() == ""

    async def test_a_models_failure_is_not_hidden(self) -> None:
        """The harness raises, or at least gives no output; the gateway knows the reason."""
        async with self.gateway([RuntimeError("the accelerator is gone")]) as gateway:
            played = await self.play(gateway)
        assert played.error is not None or not played.output
        assert played.seconds < self.seconds
        assert played.record.errors

    async def test_it_ends_at_its_deadline(self) -> None:
        """Even in the middle of a call."""
        async with self.gateway(["too late"], delay=60) as gateway:
            played = await self.play(gateway, seconds=1.0)
        assert played.error is not None
        assert played.seconds < 1.0 + self.grace

    async def test_its_key_goes_to_the_gateway_alone(self) -> None:
        """Neither the model nor the output ever sees it."""
        async with self.gateway(["It is 4."]) as gateway:
            played = await self.play(gateway)
        assert played.key not in played.output
        assert all(played.key not in str((s.messages, s.tools)) for s in played.steps)

    async def test_rollouts_at_once_do_not_mix(self) -> None:
        """Each answers its own task, in its own session."""

        def echo(prompt: str, _: Any) -> str:
            found = [f"secret-{i}" for i in range(4) if f"secret-{i}" in prompt]
            return " ".join(found)

        tasks = [Task.of(f"Say secret-{i}.", id=f"t{i}") for i in range(4)]
        async with self.gateway(echo) as gateway:
            rollouts = (self.play(gateway, task, name=task.id) for task in tasks)
            played = await asyncio.gather(*rollouts)
        assert [p.output.strip() for p in played] == [f"secret-{i}" for i in range(4)]
        assert all(p.steps for p in played)

    async def test_it_uses_a_tasks_tools_if_it_says_so(self) -> None:
        """The tool is run, and its result goes back to the model in the same branch."""
        if not self.harness.capabilities.tools:
            return
        task = Task.of("How much is 2 + 3? Use the tool.", id="tool", tools=[ADD])
        async with self.gateway([CALL, "It is 5."]) as gateway:
            played = await self.play(gateway, task)
        assert played.error is None
        assert "It is 5." in played.output
        first, second = played.steps[-2:]
        assert second.parent == first.id
        results = [m for m in second.messages if m.get("role") == "tool"]
        assert [m["content"] for m in results] == ["5"]
