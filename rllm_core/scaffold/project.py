"""A new user's project: what `rllm init NAME` writes.

my-agent/
    agent.py       the rollout function and the evaluator
    tasks.jsonl    what it is asked
    run.toml       a run of them
    test_agent.py  a test without network, against a scripted model
    README.md      the commands
"""

from pathlib import Path

from rllm_core.errors import ConfigError
from rllm_core.scaffold.names import checked_name
from rllm_core.scaffold.render import render

__all__ = ["PROJECTS", "new_project"]

PROJECTS = {
    "function": "one model call",
    "tools": "a loop of model calls and tools",
    "agents": "a solver and a judge, whose calls are trained apart",
}
"""The templates of projects, and what each shows."""


def new_project(name: str, template: str = "function", directory: Path | None = None) -> Path:
    """Write a project and return its folder; ConfigError as in `new_plugin`."""
    if template not in PROJECTS:
        listed = ", ".join(f"{key} ({what})" for key, what in PROJECTS.items())
        raise ConfigError(f"there is no template {template!r}", remedy=listed)
    checked_name(name, "project")
    target = directory if directory is not None else Path(name)
    words = {"name": name, "title": name.replace("-", " ").capitalize()}
    render(("project", f"project-{template}"), target, words)
    return target
