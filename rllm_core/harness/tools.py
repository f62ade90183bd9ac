"""Running a task's tools in this process, for harnesses that bring none of their own.

A tool's mistakes are the model's to mend: an unknown name, arguments that are no JSON object,
an exception or a time-out all come back as the tool's result, and the conversation goes on.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from rllm_core.errors import ConfigError
from rllm_core.references import resolve_object
from rllm_core.types import Task

__all__ = ["load_tools", "run_tool"]

Functions = Mapping[str, Callable[..., Any]]


def load_tools(task: Task) -> Functions:
    """The functions behind a task's tools, by tool name.

    Raises ConfigError for a tool that has no function, or one that cannot be found.
    """
    loaded: dict[str, Callable[..., Any]] = {}
    for tool in task.tools:
        if tool.function is None:
            raise ConfigError(
                f"tool {tool.name!r} of task {task.id!r} has no function to run",
                remedy='give it function="module:name", or choose a harness with its own tools',
            )
        found = resolve_object(tool.function)
        if not callable(found):
            raise ConfigError(f"{tool.function!r}, of tool {tool.name!r}, cannot be called")
        loaded[tool.name] = found
    return loaded


async def run_tool(tools: Functions, call: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Run one tool call of a reply; the tool message that answers it.

    `call` is an entry of the reply's `tool_calls`; `seconds` is how long it may take.
    """
    asked = call.get("function") or {}
    answer = {"role": "tool", "tool_call_id": call.get("id") or "", "name": asked.get("name") or ""}
    return {**answer, "content": await _result(tools, asked, seconds)}


async def _result(tools: Functions, asked: Mapping[str, Any], seconds: float) -> str:
    name = asked.get("name") or ""
    if name not in tools:
        return f"error: there is no tool {name!r}; the tools are: {', '.join(tools)}"
    try:
        arguments = json.loads(asked.get("arguments") or "{}")
    except ValueError as error:
        return f"error: the arguments are no valid JSON: {error}"
    if not isinstance(arguments, dict):
        return f"error: the arguments must be a JSON object, not {type(arguments).__name__}"
    limit = asyncio.timeout(None if seconds == float("inf") else max(seconds, 0))
    try:
        async with limit:
            return _text(await _call(tools[name], arguments))
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is shown to the model
        if limit.expired():
            return f"error: {name} took more than {seconds:.1f} s"
        return f"error: {type(error).__name__}: {error}"


async def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a tool: async ones on the loop, others in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    from rllm_core.threads import run_in_thread

    return await run_in_thread(lambda: function(**arguments))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
