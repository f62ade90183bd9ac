"""`rllm install` and `rllm uninstall`: plugins, in the running interpreter's environment.

What is run, and where packages come from, is printed before it is run.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rllm_core.plugins.installer import Installer, Source

__all__ = ["install", "uninstall"]

SECONDS = 3600
"""After this long an installer is given up."""


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--find-links", "links", multiple=True, metavar="DIR", help="Take wheels from a folder or page."
)
@click.option("--index-url", metavar="URL", help="Take packages from this index, and no other.")
@click.option("-U", "--upgrade", is_flag=True, help="Upgrade what is installed already.")
@click.option("--dry-run", is_flag=True, help="Print the command and stop.")
def install(
    names: tuple[str, ...],
    links: tuple[str, ...],
    index_url: str | None,
    upgrade: bool,
    dry_run: bool,
) -> int:
    """Install plugins: kind/name, or a package's name, with a version behind it if it matters.

    rllm install harness/codex benchmark/gsm8k

    rllm install codex --find-links dist

    With --find-links alone no index is asked.
    """
    from rllm_core.plugins.installer import Installer, Source
    from rllm_core.plugins.packages import requirement_of

    requirements = [requirement_of(name, links) for name in names]
    source = Source(index_url, links)
    installer = Installer.here()
    command = installer.install(requirements, source, upgrade=upgrade)
    _announce(command)
    click.echo(f"from {source.spoken() if source.named else installer.configured()}", err=True)
    code = 0 if dry_run else _run(command, installer, source)
    if code == 0 and not dry_run:
        _tell(requirements)
    return code


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--dry-run", is_flag=True, help="Print the command and stop.")
def uninstall(names: tuple[str, ...], dry_run: bool) -> int:
    """Remove plugins: kind/name, a name alone, or a package's name."""
    from rllm_core.plugins import Plugins
    from rllm_core.plugins.installer import Installer, Source
    from rllm_core.plugins.packages import installed_package

    entries = Plugins.installed().entries()
    packages = list(dict.fromkeys(installed_package(name, entries) for name in names))
    installer = Installer.here()
    command = installer.uninstall(packages)
    _announce(command)
    return 0 if dry_run else _run(command, installer, Source())


def _announce(command: Sequence[str]) -> None:
    from rllm_core.plugins.installer import without_password

    click.echo(f"$ {shlex.join(map(without_password, command))}", err=True)


def _run(command: Sequence[str], installer: "Installer", source: "Source") -> int:
    """Run the installer on our own output; its failure is ours."""
    sys.stdout.flush()
    done = subprocess.run(  # noqa: S603 - shown above; names are checked, and no shell reads them
        command,
        env=installer.environment(source),
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode:
        click.echo(f"error: {installer.name} ended with {done.returncode}", err=True)
    return 1 if done.returncode else 0


def _tell(requirements: Sequence[str]) -> None:
    """What is there now: each plugin of the packages, and whether it can be used."""
    import importlib
    import re

    from rllm_core.plugins import Plugins
    from rllm_core.plugins.index import Index, normalize
    from rllm_core.plugins.survey import survey

    importlib.invalidate_caches()

    named = {re.split(r"[\[<>=!~]", each)[0] for each in requirements}
    states = [s for s in survey(Plugins(Index.scan())) if normalize(s.package) in named]
    for state in states:
        reason = f": {state.reason}" if state.reason else ""
        click.echo(f"{state.kind}/{state.name} {state.version}  {state.state}{reason}")
    for package in sorted(named - {normalize(s.package) for s in states}):
        click.echo(f"warning: {package} offers no plugin", err=True)
