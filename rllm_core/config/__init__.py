"""The configuration of a run: one schema for TOML files, flags, variables and Python.

config = load("run.toml", overrides=["harness.max_turns=30"])
resolved = check(config, installed_plugins())      # every plugin, options built, or an error
text = to_toml(resolved.config)                    # a file that runs again

Most names are imported when they are first used: `rllm --help` needs the home directory, not
the schema.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rllm_core.config.home import home, writable_home

if TYPE_CHECKING:
    from rllm_core.config.installed import installed_plugins, rules_of
    from rllm_core.config.layers import Override, parse_override
    from rllm_core.config.loading import load
    from rllm_core.config.schema import (
        BenchmarkTable,
        Kind,
        ModelTable,
        PluginsTable,
        PluginTable,
        RunConfig,
        RunSettings,
    )
    from rllm_core.config.writing import to_data, to_toml

__all__ = [
    "BenchmarkTable",
    "Kind",
    "ModelTable",
    "Override",
    "PluginTable",
    "PluginsTable",
    "RunConfig",
    "RunSettings",
    "home",
    "installed_plugins",
    "load",
    "parse_override",
    "rules_of",
    "to_data",
    "to_toml",
    "writable_home",
]

_MODULES = {
    "installed": ("installed_plugins", "rules_of"),
    "layers": ("Override", "parse_override"),
    "loading": ("load",),
    "writing": ("to_data", "to_toml"),
}
"""Module → the names that it gives; every other name is the schema's."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((m for m, names in _MODULES.items() if name in names), "schema")
    found = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
