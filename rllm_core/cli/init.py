"""`rllm init NAME`: a project to start from."""

from pathlib import Path

import click

from rllm_core.cli.new import report_written

__all__ = ["init"]


@click.command()
@click.argument("name")
@click.option(
    "--template",
    default="function",
    show_default=True,
    metavar="NAME",
    help="function (one call), tools (a loop of calls and tools) or agents (a solver, a judge).",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="The folder to make (default: NAME, here).",
)
def init(name: str, template: str, directory: Path | None) -> None:
    """Write a project: an agent, its score, tasks, a run file and a test.

    It runs at once; its README has the commands.
    """
    from rllm_core.scaffold import new_project

    target = new_project(name, template, directory)
    report_written(target, "python -m pytest")
