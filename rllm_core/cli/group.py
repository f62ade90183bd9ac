"""The lazy group: names and one-line summaries are known here, modules are imported on use.

Commands of plugins (entry-point group `rllm.commands`) join them; a built-in name wins.
"""

import importlib
from typing import Any

import click

from rllm_core.cli.disabling import available_plugins, plugin_option

__all__ = ["COMMANDS", "LazyGroup", "rllm"]

COMMANDS = {
    "init": ("rllm_core.cli.init:init", "Start a project: an agent, a score, a run file."),
    "run": ("rllm_core.cli.run:run", "Run what a run file describes."),
    "eval": ("rllm_core.cli.evaluate:evaluate", "Evaluate a model or agent on benchmarks."),
    "train": ("rllm_core.cli.train:train", "Train a model on a benchmark."),
    "runs": ("rllm_core.cli.runs:runs", "List, show and compare runs."),
    "model": ("rllm_core.cli.model:model", "Set up providers and choose the default model."),
    "gateway": ("rllm_core.cli.gateway:gateway", "Run the gateway alone, for other trainers."),
    "plugins": ("rllm_core.cli.plugins:plugins", "List, check and explain installed plugins."),
    "install": ("rllm_core.cli.install:install", "Install plugins into this environment."),
    "uninstall": ("rllm_core.cli.install:uninstall", "Remove plugins from this environment."),
}
"""Command → (`module:attribute`, summary)."""


class LazyGroup(click.Group):
    """A click group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The built-in commands, then those of plugins."""
        return [*COMMANDS, *(name for name in _plugin_names() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None for an unknown one, ConfigError for a plugin's broken one."""
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            found: click.Command = getattr(importlib.import_module(module), attribute)
            return found
        if cmd_name in _plugin_names():
            loaded: click.Command = available_plugins().load("command", cmd_name)
            return loaded
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name every command with its summary, importing none."""
        rows = [(name, self._summary(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from rllm_core.plugins.options import nearest

            hint = nearest(args[0], self.list_commands(ctx)) if args else None
            if hint and "mean" not in error.message:
                raise click.UsageError(f"{error.message} D{hint[1:]}", ctx) from None
            raise

    def _summary(self, name: str) -> str:
        if name in COMMANDS:
            return COMMANDS[name][1]
        return available_plugins().index.entries["command", name][0].summary


def _plugin_names() -> list[str]:
    return available_plugins().names("command")


def _print_version(ctx: click.Context, _: Any, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import platform

        from rllm_core import API_VERSION, __version__

        api = ".".join(map(str, API_VERSION))
        click.echo(f"rllm-core {__version__}, plugin API {api}, Python {platform.python_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print versions and exit.",
)
@plugin_option
def rllm(disable: tuple[str, ...]) -> None:
    """Evaluate and train any language agent with reinforcement learning.

    rllm eval gsm8k --model openai/gpt-5-mini

    rllm train arithmetic --model smollm2-135m
    """
