"""The contract with plugins is pinned: a change here is a change for every plugin there is.

Arguments may be added to a hook (a plugin that does not name them keeps working), with a newer
minor `API_VERSION`; anything else is a new major version.
"""

import inspect
from pathlib import Path

import attrs
import click
import pytest

from rllm_core import API_VERSION, hookspecs
from rllm_core.cli.group import COMMANDS, rllm
from rllm_core.plugins import GROUPS, Plugins
from rllm_core.plugins.kinds import has_options
from rllm_core.plugins.survey import FINE, survey

PINNED = {
    "rllm_algorithm": ("name",),
    "rllm_backend": ("name",),
    "rllm_benchmark": ("name",),
    "rllm_command": ("name",),
    "rllm_episode_finished": ("run", "episode"),
    "rllm_harness": ("name",),
    "rllm_run_finished": ("run", "summary"),
    "rllm_run_started": ("run",),
    "rllm_sampler": ("name",),
    "rllm_sandbox": ("name",),
    "rllm_step_finished": ("run", "step", "metrics"),
    "rllm_tracker": ("name",),
}
PINNED_API = (0, 1)
DOCS = Path(__file__).parents[2] / "docs"


def hooks() -> dict[str, object]:
    return {name: each for name, each in vars(hookspecs).items() if name.startswith("rllm_")}


def test_the_signatures_of_the_hooks() -> None:
    found = {name: tuple(inspect.signature(each).parameters) for name, each in hooks().items()}
    assert (found, API_VERSION) == (PINNED, PINNED_API)


def test_a_tracker_has_the_methods_of_the_events() -> None:
    from rllm_core.tracking import Tracker

    for name, parameters in PINNED.items():
        if name.removeprefix("rllm_") not in GROUPS:
            assert tuple(inspect.signature(getattr(Tracker, name)).parameters) == (
                "self",
                *parameters,
            )


@pytest.mark.parametrize("name", sorted(PINNED))
def test_every_hook_is_documented(name: str) -> None:
    assert (hooks()[name].__doc__ or "").strip().endswith(".")
    assert f"`{name}" in (DOCS / "plugins.md").read_text(encoding="utf-8")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    """Every command below a group, by its full name."""
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((" ".join((*path, name)), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def test_every_command_and_every_option_says_what_it_does() -> None:
    mute = []
    for name, command in commands(rllm):
        if not (command.help or "").strip():
            mute.append(name)
        mute += [
            f"{name} {option.opts[0]}"
            for option in command.params
            if isinstance(option, click.Option) and not option.help
        ]
    assert mute == []


def test_every_command_is_told_of_in_the_documentation() -> None:
    told = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.glob("**/*.md"))
    told += (DOCS.parent / "README.md").read_text(encoding="utf-8")
    untold = [name for name, _ in commands(rllm) if f"rllm {name}" not in told]
    assert untold == []
    assert set(COMMANDS) <= {name for name, _ in commands(rllm)}


def test_every_option_of_our_own_plugins_says_what_it_is_for() -> None:
    plugins = Plugins.installed()
    mute = []
    for entry in plugins.entries():
        if has_options(entry.kind) and entry.package.startswith("rllm-"):
            options = attrs.fields(
                plugins.load(entry.kind, f"{entry.package}/{entry.name}").Options
            )
            mute += [f"{entry}: {a.name}" for a in options if a.init and not a.metadata.get("doc")]
    assert mute == []


def test_our_own_plugins_pass_their_check() -> None:
    states = survey(Plugins.installed(), check=True)
    assert [
        s for s in states if s.package.startswith("rllm-") and s.state not in (*FINE, "needs")
    ] == []
