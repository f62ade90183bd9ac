"""Tools in Hermes form: how ChatML models are told of tools, and how they call them.

The system message lists JSON signatures inside `<tools>`; a call is a JSON object with `name`
and `arguments` inside `<tool_call>`; a result is a text inside `<tool_response>`. The sentences
are those of Qwen2.5's template, which serving engines' `hermes` parsers expect too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rllm_core.gateway.renderers.protocol import ParsedCall

__all__ = ["call_text", "parse_calls", "response_text", "tools_text"]

_BLOCK = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)

_BEFORE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_AFTER = """
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """The part of the system message that declares the tools."""
    return _BEFORE + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools) + _AFTER


def call_text(call: Mapping[str, Any]) -> str:
    """One tool call of an assistant message, in Chat Completions form, as the model writes it."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # need not be JSON: then shown as it is
            arguments = json.loads(arguments)
    body: dict[str, Any] = {"name": function.get("name"), "arguments": arguments or {}}
    return f"<tool_call>\n{json.dumps(body, ensure_ascii=False)}\n</tool_call>"


def response_text(content: str) -> str:
    """A tool's result as the model reads it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def parse_calls(text: str) -> tuple[str, list[ParsedCall]]:
    """The text outside of `<tool_call>` blocks, and the blocks in order, good or malformed."""
    calls = [_parse_block(found) for found in _BLOCK.finditer(text)]
    return (_BLOCK.sub("", text).strip() if calls else text), calls


def _parse_block(found: re.Match[str]) -> ParsedCall:
    raw = found[0]
    if not found[2]:
        return ParsedCall(raw, status="unclosed_block")
    try:
        body = json.loads(found[1])
    except (ValueError, RecursionError):
        return ParsedCall(raw, status="invalid_json")
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        return ParsedCall(raw, status="missing_name")
    return ParsedCall(raw, body["name"], body.get("arguments"))
