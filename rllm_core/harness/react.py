"""The built-in agent: one model call, or a loop of calls and tools when the task has tools.

ReAct (Yao et al. 2022, arXiv:2210.03629) over Chat Completions: call the model, run the tools
that it asks for, append their results, and call it again until it answers without a tool.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen, validators

from rllm_core.errors import ConfigError, HarnessError, ModelError, RolloutTimeout
from rllm_core.harness import Harness, HarnessCapabilities, Outcome, RolloutContext
from rllm_core.harness.tools import load_tools, run_tool
from rllm_core.hookspecs import hookimpl
from rllm_core.types import Stop, Task

__all__ = ["React"]


class React(Harness):
    """One model call, or a tool loop."""

    capabilities = HarnessCapabilities(tools=True, images=True)

    @frozen
    class Options:
        """Options of react."""

        system_prompt: str = field(
            default="", metadata={"doc": "put before the task's messages, as a system message"}
        )
        max_turns: int = field(
            default=10,
            validator=validators.ge(1),
            metadata={"doc": "model calls a rollout may make before it is stopped"},
        )
        max_tool_seconds: float = field(
            default=30.0,
            validator=validators.gt(0),
            metadata={"doc": "time one tool call may take, in seconds"},
        )

    def check(self, task: Task) -> None:
        """Refuse a task whose tools have no function to run."""
        load_tools(task)

    async def run(self, task: Task, ctx: RolloutContext) -> Outcome:
        """Call the model until it answers without asking for a tool."""
        import aiohttp

        tools = self._tools(task)
        messages = self._opening(task)
        async with aiohttp.ClientSession() as http:
            for turn in range(1, self.options.max_turns + 1):
                reply = await _chat(http, ctx, messages, task)
                messages.append(reply)
                calls = reply.get("tool_calls") or []
                if not calls:
                    return Outcome(reply.get("content") or "", metrics={"turns": float(turn)})
                for call in calls:
                    seconds = min(self.options.max_tool_seconds, ctx.deadline - time.monotonic())
                    messages.append(await run_tool(tools, call, seconds))
        metrics = {"turns": float(self.options.max_turns)}
        return Outcome(reply.get("content") or "", metrics=metrics, stop=Stop.MAX_TURNS)

    def _tools(self, task: Task) -> Mapping[str, Any]:
        try:
            return load_tools(task)
        except ConfigError as error:
            raise HarnessError(error.message, remedy=error.remedy) from error

    def _opening(self, task: Task) -> list[dict[str, Any]]:
        system = self.options.system_prompt
        return ([{"role": "system", "content": system}] if system else []) + task.messages


async def _chat(
    http: Any, ctx: RolloutContext, messages: list[dict[str, Any]], task: Task
) -> dict[str, Any]:
    """One Chat Completions call; the assistant's message, as the server wrote it."""
    import aiohttp

    body: dict[str, Any] = {"model": ctx.model, "messages": messages}
    if task.tools:
        body["tools"] = [tool.spec() for tool in task.tools]
    left = ctx.deadline - time.monotonic()
    if left <= 0:
        raise RolloutTimeout("the rollout's time was up before its next model call")
    limit = aiohttp.ClientTimeout(total=None if left == float("inf") else left)
    headers = {"Authorization": f"Bearer {ctx.api_key}"}
    url = f"{ctx.base_url}/chat/completions"
    try:
        async with http.post(url, json=body, headers=headers, timeout=limit) as answer:
            return _message(answer.status, await answer.text())
    except TimeoutError as error:
        raise RolloutTimeout("the rollout's time was up during a model call") from error
    except aiohttp.ClientError as error:
        raise ModelError(f"no answer from {url}: {type(error).__name__}: {error}") from error


def _message(status: int, text: str) -> dict[str, Any]:
    """The assistant's message in a response; ModelError says what the server said instead."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if status != 200:
        error = document.get("error") if isinstance(document, dict) else None
        said = error.get("message") if isinstance(error, dict) else text
        raise ModelError(f"the model's server answered {status}: {said!s:.500}")
    try:
        return dict(document["choices"][0]["message"])
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ModelError(f"the model's server sent no chat completion: {text:.200}") from error


@hookimpl
def rllm_harness() -> type[React]:
    """The class behind `--harness react`."""
    return React
