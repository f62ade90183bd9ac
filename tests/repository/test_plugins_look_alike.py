"""Every plugin package is laid out, named and declared in the one way the architecture gives."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

KINDS = {  # the folder under plugins/, also the end of the entry-point group, and the kind's name
    "algorithms": "algorithm",
    "backends": "backend",
    "benchmarks": "benchmark",
    "commands": "command",
    "harnesses": "harness",
    "samplers": "sampler",
    "sandboxes": "sandbox",
    "trackers": "tracker",
}

KEYS = {
    *("name", "version", "description", "readme", "license", "requires-python"),
    *("dependencies", "optional-dependencies", "entry-points"),
}
"""What a plugin's [project] table may hold."""


def differences(plugin: Path, core: dict) -> Iterator[str]:
    """Yield each way in which a plugin departs from the pattern."""
    manifest = tomllib.loads((plugin / "pyproject.toml").read_text())
    module = f"rllm_{KINDS[plugin.parent.name]}_{plugin.name.replace('-', '_')}"
    for path in (f"{module}/__init__.py", "README.md", "tests"):
        if not (plugin / path).exists():
            yield f"has no {path}"
    yield from wrong_metadata(plugin, manifest["project"], core["project"])
    yield from wrong_entry_points(plugin, manifest["project"].get("entry-points", {}), module)
    yield from wrong_dependencies(manifest["project"], core["project"]["version"])
    if manifest["build-system"] != core["build-system"]:
        yield "has another build-system than the core"
    if manifest["tool"]["uv"]["build-backend"].get("module-root") != "":
        yield 'lacks module-root = "" for the build backend'


def wrong_metadata(plugin: Path, project: dict, core: dict) -> Iterator[str]:
    """Yield what is not as the folder's name or the core's metadata says."""
    if project["name"] != f"rllm-{KINDS[plugin.parent.name]}-{plugin.name}":
        yield f"is named {project['name']}"
    for key in project.keys() - KEYS:
        yield f"has the key {key}, which the pattern lacks"
    for key in ("version", "requires-python", "license", "readme"):
        if project.get(key) != core[key]:
            yield f"has {key} = {project.get(key)}, the core {core[key]}"
    if not project.get("description", "").endswith("."):
        yield "has no description that is a sentence"


def wrong_entry_points(plugin: Path, groups: dict, module: str) -> Iterator[str]:
    """Yield a missing entry point of the folder's name, and those that lead elsewhere."""
    group = f"rllm.{plugin.parent.name}"
    if plugin.name not in groups.get(group, {}):
        yield f"has no entry point {plugin.name} in {group}"
    for target in (target for targets in groups.values() for target in targets.values()):
        if re.split("[.:]", target)[0] != module:
            yield f"has an entry point outside {module}: {target}"


def wrong_dependencies(project: dict, version: str) -> Iterator[str]:
    """Yield what is wrong with a plugin's dependencies on this family of packages."""
    major, minor, _ = version.split(".")
    family = f">={major}.{minor},<{major}.{int(minor) + 1}"
    ours = [text for text in project.get("dependencies", []) if text.startswith("rllm")]
    if len(ours) != 1 or not re.fullmatch(rf"rllm-core(\[[a-z,-]+\])?{re.escape(family)}", ours[0]):
        yield f"must depend on rllm-core{family} (with extras) and no other rllm package: {ours}"


def test_every_plugin_follows_the_pattern(root, plugins, manifest):
    wrong = [
        f"{plugin.relative_to(root)} {difference}"
        for plugin in plugins
        for difference in differences(plugin, manifest)
    ]
    assert not wrong, "\n".join(wrong)


def test_plugin_folders_are_of_a_known_kind(root):
    folders = [path for path in root.glob("plugins/*/*") if (path / "pyproject.toml").exists()]
    assert {path.parent.name for path in folders} <= set(KINDS)


def test_no_two_packages_share_a_name_or_module(plugins):
    names = [tomllib.loads((p / "pyproject.toml").read_text())["project"]["name"] for p in plugins]
    assert len(names) == len(set(names))
