"""Write the reference pages, docs/reference/*.md, from the code that they describe.

    python scripts/reference.py            writes them
    python scripts/reference.py --check    fails, naming the pages, where one is not as it would be

A page of a kind tells its hook, its base class, what it declares and what the core's own plugins
take; the others the run file, the commands and the events. What one lacks, a docstring lacks.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from rllm_core import hookspecs
from rllm_core.cli.group import COMMANDS, rllm
from rllm_core.config import schema
from rllm_core.plugins import GROUPS, Plugins
from rllm_core.plugins.describe import describe_plugin
from rllm_core.plugins.kinds import has_options, load_base
from rllm_core.plugins.shapes import describe

PAGES = Path(__file__).resolve().parents[1] / "docs/reference"
HEAD = "<!-- Written by scripts/reference.py from the code's docstrings: change those. -->\n"


def main() -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    made = pages()
    there = {path.name: path.read_text("utf-8") for path in PAGES.glob("*.md")}
    stale = sorted(name for name in made.keys() | there if made.get(name) != there.get(name))
    if check:
        for name in stale:
            print(f"docs/reference/{name} is not as the code is: python scripts/reference.py")
        return 1 if stale else 0
    PAGES.mkdir(exist_ok=True)
    for name in there.keys() - made.keys():
        (PAGES / name).unlink()
    for name, text in made.items():
        (PAGES / name).write_text(text, "utf-8")
    return 0


def pages() -> dict[str, str]:
    """Every page by its file name."""
    found = {f"{kind}.md": kind_page(kind) for kind in GROUPS}
    found |= {"run-file.md": run_file(), "commands.md": commands(), "events.md": events()}
    return {name: "\n".join((HEAD, *lines)).rstrip() + "\n" for name, lines in found.items()}


def kind_page(kind: str) -> Iterator[str]:
    """One kind of plugin: its hook, its base class, the core's own plugins."""
    yield from (f"# {kind.capitalize()}", "")
    yield from (f"Entry-point group `{GROUPS[kind]}`, hook `rllm_{kind}`:", "")
    yield from (text(getattr(hookspecs, f"rllm_{kind}")), "")
    base = load_base(kind)
    if base is not None and base.__module__.startswith("rllm_core"):
        yield from class_section(base)
        declared = type(getattr(base, "capabilities", None))
        if attrs.has(declared):
            yield from class_section(declared)
    for entry in Plugins.installed().entries(kind):
        if entry.package == "rllm-core":
            yield from built_in(kind, entry.name)


def built_in(kind: str, name: str) -> Iterator[str]:
    """A plugin that the core brings along, with its options."""
    found = describe_plugin(Plugins.installed(), f"{kind}/{name}")
    yield from (f"## {kind} `{name}`", "", found.doc, "")
    if found.options and has_options(kind):
        yield from table(
            ("option", "type", "default", ""),
            [
                (f"`{o.name}`", o.type, "required" if o.required else shown(o.default), o.doc)
                for o in found.options
            ],
        )


def class_section(cls: type) -> Iterator[str]:
    """A class: what it is, its fields or declarations, its methods."""
    yield from (f"## `{cls.__module__}.{cls.__name__}`", "", text(cls), "")
    if attrs.has(cls):
        attrs.resolve_types(cls)
        fields = [a for a in attrs.fields(cls) if not a.name.startswith("_")]
        yield from table(
            ("field", "type", "default"),
            [(f"`{a.name}`", describe(a.type), shown_default(a)) for a in fields],
        )
        return
    names = [n for n in vars(cls).get("__annotations__", {}) if hasattr(cls, n)]
    if names:
        yield from table(
            ("declares", "default"), [(f"`{n}`", shown(getattr(cls, n))) for n in names]
        )
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function):
            yield from (f"### `{signature(name, member, function)}`", "", text(function), "")


def signature(name: str, member: Any, function: Callable[..., Any]) -> str:
    """A method as its user calls it."""
    if isinstance(member, property):
        return name
    parameters = list(inspect.signature(function).parameters.values())[1:]
    listed = ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}{name}({listed})"


def run_file() -> Iterator[str]:
    """The tables of a run file."""
    yield from ("# The run file", "", text(schema), "")
    sections = {
        "[run]": schema.RunSettings,
        "[benchmark], [validation]": schema.BenchmarkTable,
        "[models.ROLE]": schema.ModelTable,
    }
    for title, cls in sections.items():
        yield from (f"## `{title}`", "", text(cls), "")
        attrs.resolve_types(cls)
        yield from table(
            ("setting", "type", "default", "runs", ""),
            [
                (f"`{a.name}`", describe(a.type), shown_default(a), *facts(a))
                for a in attrs.fields(cls)
                if "doc" in a.metadata
            ],
        )


def facts(attribute: Any) -> tuple[str, str]:
    """Which kinds of run a setting is for, and its sentence."""
    kinds = attribute.metadata["kinds"]
    return ("" if len(kinds) > 1 else kinds[0], attribute.metadata["doc"])


def commands() -> Iterator[str]:
    """The command line: what `--help` says of each command."""
    yield from ("# Commands", "")
    context = click.Context(rllm)
    for name in COMMANDS:
        command = rllm.get_command(context, name)
        if command is not None:
            yield from command_section(f"rllm {name}", command)


def command_section(path: str, command: click.Command) -> Iterator[str]:
    """One command, then those below it."""
    arguments = " ".join(
        p.make_metavar(click.Context(command))
        for p in command.params
        if p.param_type_name == "argument"
    )
    yield from (f"## `{f'{path} {arguments}'.strip()}`", "")
    yield from (inspect.cleandoc(command.help or "").replace("\b\n", ""), "")
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        yield from table(
            ("option", ""), [(f"`{', '.join(o.opts)}`", o.help or "") for o in options]
        )
    for name, each in getattr(command, "commands", {}).items():
        yield from command_section(f"{path} {name}", each)


def events() -> Iterator[str]:
    """The event hooks."""
    yield from ("# Events", "", "What a run's trackers and plugins are told, in order.", "")
    kinds = {f"rllm_{kind}" for kind in GROUPS}
    for name, hook in vars(hookspecs).items():
        if name.startswith("rllm_") and name not in kinds:
            listed = ", ".join(inspect.signature(hook).parameters)
            yield from (f"## `{name}({listed})`", "", text(hook), "")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table and an empty line."""
    for row in (head, ("---",) * len(head), *rows):
        cells = (cell.replace("\n", " ").replace("|", r"\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


def text(described: Any) -> str:
    """A docstring, its example blocks kept."""
    return inspect.cleandoc(described.__doc__ or "")


def shown_default(attribute: Any) -> str:
    """A field's default as one types it."""
    if attribute.default is attrs.NOTHING:
        return "required"
    if isinstance(attribute.default, attrs.Factory):
        return shown(attribute.default.factory())
    return shown(attribute.default)


def shown(value: Any) -> str:
    """A value in words."""
    if attrs.has(type(value)):
        return f"`{type(value).__name__}()`"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    if value is None or value in ("", (), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.exit(main())
