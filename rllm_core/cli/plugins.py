"""`rllm plugins`: what is installed, whether it works, and what its options are."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click

from rllm_core.cli.disabling import available_plugins, plugin_option
from rllm_core.cli.new import new
from rllm_core.plugins import KINDS

if TYPE_CHECKING:
    from rllm_core.plugins.describe import Description, Status

__all__ = ["plugins"]


@click.group(invoke_without_command=True)
@click.option("--kind", type=click.Choice(KINDS), help="Only plugins of this kind.")
@click.option("--check", is_flag=True, help="Import every plugin; fail if one is broken.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a plugin.")
@plugin_option
@click.pass_context
def plugins(
    ctx: click.Context,
    kind: str | None,
    check: bool,
    as_json: bool,
    disable: tuple[str, ...],  # noqa: ARG001 - read off the context, as subcommands do
) -> None:
    """List the installed plugins; `show kind/name` explains one.

    Without --check nothing is imported: a plugin whose package can be found counts as ok.
    """
    if ctx.invoked_subcommand is not None:
        return
    from rllm_core.plugins.describe import survey

    found = survey(available_plugins(), kind, check=check)
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2))
    else:
        for line in _listing(found):
            click.echo(line)
    if check and any(each.state not in ("ok", "disabled") for each in found):
        ctx.exit(1)


plugins.add_command(new)


def _listing(found: "list[Status]") -> Iterator[str]:
    from rllm_core.cli.table import columns

    if not found:
        yield "No plugin of this kind is installed."
        return
    rows = [("KIND", "NAME", "PACKAGE", "VERSION", "STATUS")]
    for each in found:
        state = f"{each.state}: {each.reason}" if each.reason else each.state
        rows.append((each.kind, each.name, each.package, each.version, state))
    yield from columns(rows)


@plugins.command("show")
@click.argument("name", metavar="KIND/NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Explain one plugin: summary, options, capabilities, package, source."""
    from rllm_core.plugins.describe import describe_plugin

    found = describe_plugin(available_plugins(), name)
    if as_json:
        click.echo(json.dumps(attrs.asdict(found), indent=2))
        return
    for line in _explained(found):
        click.echo(line)


def _explained(found: "Description") -> Iterator[str]:
    yield f"{found.kind}/{found.name}   {found.package} {found.version}"
    if found.summary:
        yield f"  {found.summary}"
    if found.doc:
        yield ""
        yield from (f"  {line}".rstrip() for line in found.doc.splitlines())
    yield ""
    yield f"options (table [{found.kind}], or {found.kind}.OPTION=VALUE)"
    for option in found.options:
        default = "required" if option.required else f"default {_shown(option.default)}"
        yield f"  {option.name}: {option.type}, {default}"
        if option.doc:
            yield f"      {option.doc}"
    if not found.options:
        yield "  none"
    if found.capabilities:
        yield ""
        yield "capabilities"
        yield from (f"  {key}: {_shown(value)}" for key, value in found.capabilities.items())
    if found.source:
        yield ""
        yield f"source: {found.source}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return json.dumps(value)
