"""A new plugin's package: what `rllm plugins new KIND NAME` writes.

rllm-harness-my-agent/
    pyproject.toml  README.md
    rllm_harness_my_agent/__init__.py       the plugin, whole
    tests/test_my_agent.py                  the conformance suite of its kind
"""

import keyword
from pathlib import Path

from rllm_core import __version__
from rllm_core.errors import ConfigError
from rllm_core.plugins import GROUPS, Plugins
from rllm_core.scaffold.names import checked_name
from rllm_core.scaffold.render import render

__all__ = ["SCAFFOLDED", "new_plugin"]

SCAFFOLDED = ("harness", "backend", "benchmark", "algorithm", "tracker")
"""The kinds that there are templates for."""

# What would name a class of ours that the module imports, or mean something else on a command line.
_RESERVED = {
    "benchmark": frozenset({"row", "file", "new"}),
    "harness": frozenset({"new"}),
    "algorithm": frozenset({"new"}),
    "backend": frozenset({"new"}),
    "tracker": frozenset({"new"}),
}


def new_plugin(kind: str, name: str, directory: Path | None = None) -> Path:
    """Write the package of a plugin and return its folder.

    `directory` is the folder to make (default: the distribution's name, here). Raises
    ConfigError for a kind without templates, for a name that cannot be one or that another
    package has already, and where the folder is there.
    """
    if kind not in SCAFFOLDED:
        raise ConfigError(f"there is no template of a {kind}", remedy=", ".join(SCAFFOLDED))
    checked_name(name, kind, _RESERVED[kind] | frozenset(keyword.kwlist))
    distribution = f"rllm-{kind}-{name}"
    for entry in Plugins.installed().entries(kind):
        if entry.name == name and entry.package != distribution:
            taken = f"{kind} '{name}' is offered by {entry.package} {entry.version}"
            raise ConfigError(taken, remedy="choose another name: two make it ambiguous")
    target = directory if directory is not None else Path(distribution)
    render(("plugin", kind), target, _words(kind, name, distribution))
    return target


def _words(kind: str, name: str, distribution: str) -> dict[str, str]:
    """What the templates' words stand for."""
    major, minor, _ = __version__.split(".")
    camel = "".join(part.capitalize() for part in name.split("-"))
    return {
        "kind": kind,
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "distribution": distribution,
        "module": distribution.replace("-", "_"),
        "class_name": f"{camel}{kind.capitalize()}",
        "test": name.replace("-", "_"),
        "group": GROUPS[kind],
        "family": f">={major}.{minor},<{major}.{int(minor) + 1}",
    }
