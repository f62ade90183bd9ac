"""`-p no:NAME`, as pytest has it: before the command for all of them, or among its options.

rllm -p no:acme-evals plugins
rllm eval gsm8k --model tiny -p no:tracker/wandb
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rllm_core.plugins import Plugins

__all__ = ["available_plugins", "disabled_names", "plugin_option"]

F = TypeVar("F", bound=Callable[..., Any])


def _names(_ctx: click.Context, _option: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    values = tuple(values)
    for value in values:
        word, _, name = value.partition(":")
        if word != "no" or not name.strip():
            raise click.BadParameter(f"'{value}' is not of the form no:NAME")
    return tuple(value.partition(":")[2].strip() for value in values)


def plugin_option(command: F) -> F:
    """Give a command the option; its function gets the NAMEs as `disable`."""
    return click.option(
        "-p",
        "disable",
        multiple=True,
        metavar="no:NAME",
        callback=_names,
        is_eager=True,
        help="Disable a plugin: kind/name, a name, or a package.",
    )(command)


def disabled_names(given: Iterable[str] = ()) -> tuple[str, ...]:
    """What is disabled here: what this command was given, and those around it."""
    context: click.Context | None = click.get_current_context(silent=True)
    names = list(given)
    while context is not None:
        names = [*(context.params.get("disable") or ()), *names]
        context = context.parent
    return tuple(dict.fromkeys(names))


def available_plugins(given: Iterable[str] = ()) -> "Plugins":
    """The installed plugins, less those that were disabled for good or for this command."""
    from rllm_core.config.installed import installed_plugins

    return installed_plugins(disabled_names(given))
