"""`rllm plugins new KIND NAME`: a plugin's package, to start from."""

from pathlib import Path

import click

__all__ = ["new", "report_written"]


@click.command()
@click.argument("kind", metavar="KIND")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="The folder to make (default: rllm-KIND-NAME, here).",
)
def new(kind: str, name: str, directory: Path | None) -> None:
    """Write a plugin's package: a harness, backend, benchmark, algorithm or tracker.

    It installs, passes the conformance suite of its kind, and runs; its README has the commands.
    """
    from rllm_core.scaffold import new_plugin

    target = new_plugin(kind, name, directory)
    report_written(target, "pip install -e '.[test]'")


def report_written(target: Path, first: str) -> None:
    """Name each file that was written, and what to do next."""
    for file in sorted(path for path in target.rglob("*") if path.is_file()):
        click.echo(f"wrote {file}")
    click.echo(f"next: cd {target} && {first}   (README.md goes on from there)")
