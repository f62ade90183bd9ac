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
    from rllm_core.plugins import Plugins
    from rllm_core.plugins.describe import Description
    from rllm_core.plugins.survey import Status

__all__ = ["plugins"]

STATES = ("ok", "broken", "needs", "disabled", "ambiguous")
"""What `survey` calls them; a test holds the two together."""


@click.group(invoke_without_command=True)
@click.option("--kind", type=click.Choice(KINDS), help="Only plugins of this kind.")
@click.option("--status", type=click.Choice(STATES), help="Only plugins in this state.")
@click.option("--check", is_flag=True, help="Import every plugin; fail unless all are ok.")
@click.option("--timings", is_flag=True, help="Import every plugin; show how long that takes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a plugin.")
@plugin_option
@click.pass_context
def plugins(
    ctx: click.Context,
    *,
    kind: str | None,
    status: str | None,
    check: bool,
    timings: bool,
    as_json: bool,
    disable: tuple[str, ...],  # noqa: ARG001 - read off the context, as subcommands do
) -> None:
    """List the installed plugins; `show kind/name` explains one.

    Without --check and --timings nothing is imported: a plugin counts as ok whose package, and
    what it requires, can be found.
    """
    if ctx.invoked_subcommand is not None:
        return
    from rllm_core.plugins.survey import FINE, survey

    available = available_plugins()
    everything = survey(available, kind, check=check or timings)
    found = [each for each in everything if status in (None, each.state)]
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2))
    else:
        for line in (*_heading(everything), *_listing(found, timings), *_unmatched(available)):
            click.echo(line)
    if check and any(each.state not in FINE for each in everything):
        ctx.exit(1)


plugins.add_command(new)


def _heading(found: "list[Status]") -> Iterator[str]:
    import platform

    from rllm_core import API_VERSION, __version__

    packages = len({each.package for each in found})
    api = ".".join(map(str, API_VERSION))
    yield (
        f"rllm-core {__version__}, plugin API {api}, Python {platform.python_version()}: "
        f"{len(found)} plugins from {packages} packages"
    )


def _listing(found: "list[Status]", timings: bool) -> Iterator[str]:
    from rllm_core.cli.table import columns

    if not found:
        yield "No such plugin is installed."
        return
    timed = ("MS",) if timings else ()
    rows: list[tuple[str, ...]] = [("KIND", "NAME", "PACKAGE", "VERSION", *timed, "STATUS")]
    for each in found:
        state = f"{each.state}: {each.reason}" if each.reason else each.state
        took = "" if each.import_ms is None else f"{each.import_ms:.1f}"
        rows.append(
            (each.kind, each.name, each.package, each.version, *(took for _ in timed), state)
        )
    yield from columns(rows)


def _unmatched(available: "Plugins") -> Iterator[str]:
    """Rules that hold without having anything to hold for: perhaps a slip of the pen."""
    for rule in available.selection.unmatched(available.index):
        yield f"note: {rule.origin} names '{rule.pattern}', which is not installed"


@plugins.command("show")
@click.argument("name", metavar="KIND/NAME")
@click.option("--readme", is_flag=True, help="Print the package's README instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, readme: bool, as_json: bool) -> None:
    """Explain one plugin: summary, options, capabilities, package, source, documentation."""
    from rllm_core.plugins.describe import describe_plugin, readme_of

    if readme:
        click.echo(readme_of(available_plugins(), name))
        return
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
    yield ""
    yield from _origins(found)


def _origins(found: "Description") -> Iterator[str]:
    """Where it comes from, and where more is said."""
    if found.requires:
        plain = [each for each in found.requires if "extra ==" not in each]
        yield f"requires: {', '.join(plain)}"
    if found.source:
        yield f"source: {found.source}"
    if found.documentation:
        yield f"documentation: {found.documentation}"
    if found.readme:
        yield f"readme: rllm plugins show {found.kind}/{found.name} --readme"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return json.dumps(value)
