"""The tools of a Responses request, as functions, and the way back.

Chat templates know functions only. A custom tool becomes a function of one text, a namespace a
prefix of its tools' names, the local shell a function of its own; `ToolForm` remembers what each
was. Web search is dropped and counted: agents offer it without needing it. What else only
OpenAI's servers can run is refused by name.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import Factory, define

from rllm_core.gateway.calls import Refusal, ToolForm
from rllm_core.gateway.dialects.incoming import chat_tool, object_at, objects_at, refuse, text_at

__all__ = ["Tools", "call_item", "flat_name"]

_SHELL = "local_shell"
_SHELL_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The argv."},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["command"],
}
_INPUT_SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


def flat_name(name: str, namespace: str) -> str:
    """A tool's name as a function."""
    return f"{namespace}__{name}" if namespace else name


@define
class Tools:
    """The tools of a request: as functions, their forms by function name, what was dropped."""

    functions: list[dict[str, Any]] = Factory(list)
    forms: dict[str, ToolForm] = Factory(dict)
    dropped: list[str] = Factory(list)

    def add(self, where: str, tools: Any, namespace: str = "") -> None:
        """Take a list of tools; a refusal names the first that cannot be served."""
        for i, tool in enumerate(objects_at(where, tools)):
            self._take(f"{where}[{i}]", tool, namespace)

    def _take(self, where: str, tool: Mapping[str, Any], namespace: str) -> None:
        kind = tool.get("type")
        if kind == "namespace" and not namespace:
            self.add(f"{where}.tools", tool.get("tools"), _name(where, tool))
        elif isinstance(kind, str) and kind.startswith("web_search"):
            self.dropped.append(f"tool {kind:.40}")
        elif kind == "function":
            schema = object_at(f"{where}.parameters", tool.get("parameters") or {"type": "object"})
            about = text_at(f"{where}.description", tool.get("description"))
            self._function(where, ToolForm(kind, _name(where, tool), namespace), about, schema)
        elif kind == "custom":
            form = ToolForm(kind, _name(where, tool), namespace)
            self._function(where, form, _about_custom(where, tool), _INPUT_SCHEMA)
        elif kind == _SHELL:
            about = "Runs a command on the user's machine."
            self._function(where, ToolForm(_SHELL, _SHELL), about, _SHELL_SCHEMA)
        else:
            raise Refusal(
                400,
                f"{where}: tools of type {kind!r:.60} are run by OpenAI's servers only; describe "
                "it as a function, or leave it out",
            )

    def _function(self, where: str, form: ToolForm, about: str, schema: Mapping[str, Any]) -> None:
        name = flat_name(form.name, form.namespace)
        function = chat_tool(name, about, schema)
        if name not in self.forms:
            self.forms[name] = form
            self.functions.append(function)
        elif self.forms[name] != form or function not in self.functions:  # told twice is no harm
            raise Refusal(400, f"{where}: there is another tool of the name {name!r:.80}")

    def choice(self, choice: Any) -> Any:
        """A tool choice in Chat Completions form."""
        if choice is None or choice in ("auto", "none", "required"):
            return choice
        choice = object_at("tool_choice", choice)
        kind = choice.get("type")
        if kind == "allowed_tools":
            allowed = objects_at("tool_choice.tools", choice.get("tools"))
            named = [self._chosen(tool) for tool in allowed]
            mode = text_at("tool_choice.mode", choice.get("mode")) or "auto"
            return {"type": kind, kind: {"mode": mode, "tools": named}}
        return self._chosen(choice)

    def _chosen(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        kind = choice.get("type")
        if kind not in ("function", "custom", _SHELL):
            raise refuse("tool_choice.type", "auto, none, required or a tool of yours", kind)
        given = text_at("tool_choice.name", choice.get("name")) or _SHELL
        name = flat_name(given, text_at("tool_choice.namespace", choice.get("namespace")))
        if name not in self.forms:
            raise refuse("tool_choice.name", "the name of a tool in tools", name)
        return {"type": "function", "function": {"name": name}}


def _name(where: str, tool: Mapping[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise refuse(f"{where}.name", "a text", name)
    return name


def _about_custom(where: str, tool: Mapping[str, Any]) -> str:
    """A custom tool's description, with the grammar that its input is held to."""
    about = text_at(f"{where}.description", tool.get("description"))
    form = object_at(f"{where}.format", tool.get("format") or {})
    if form.get("type") != "grammar":
        return about
    syntax = text_at(f"{where}.format.syntax", form.get("syntax"))
    definition = text_at(f"{where}.format.definition", form.get("definition"))
    return f"{about}\n\nThe input must fit this {syntax} grammar:\n{definition}".strip()


def call_item(call: Mapping[str, Any], forms: Mapping[str, ToolForm]) -> dict[str, Any]:
    """A tool call as the item that its tool's form has."""
    function = call["function"]
    name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
    form = forms.get(name, ToolForm("function", name))
    item: dict[str, Any] = {"call_id": call["id"], "status": "completed"}
    if form.kind == _SHELL:
        item["action"] = dict(_shell_action(arguments))
        return {"type": "local_shell_call", "id": f"lsh_{call['id']}", **item}
    item["name"] = form.name
    if form.namespace:
        item["namespace"] = form.namespace
    if form.kind == "custom":
        given = _input(arguments)
        return {"type": "custom_tool_call", "id": f"ctc_{call['id']}", **item, "input": given}
    return {"type": "function_call", "id": f"fc_{call['id']}", **item, "arguments": arguments}


def _input(arguments: str) -> str:
    """A custom tool's input; arguments of another shape are the input themselves."""
    given = _object(arguments).get("input")
    return given if isinstance(given, str) else arguments


def _shell_action(arguments: str) -> Iterator[tuple[str, Any]]:
    given = _object(arguments)
    command = given.get("command")
    if not isinstance(command, list):
        command = ["bash", "-lc", command if isinstance(command, str) else arguments]
    env = given.get("env")
    yield "type", "exec"
    yield "command", [str(word) for word in command]
    yield "env", {str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {}
    for key, kind in (("working_directory", str), ("timeout_ms", int)):
        if isinstance(given.get(key), kind):
            yield key, given[key]


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
