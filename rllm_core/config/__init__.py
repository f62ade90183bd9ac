"""The configuration of a run: one schema for TOML files, flags, variables and Python.

config = load("run.toml", overrides=["harness.max_turns=30"])
resolved = check(config, Plugins.installed())      # every plugin, options built, or an error
text = to_toml(resolved.config)                    # a file that runs again
"""

from rllm_core.config.home import home, writable_home
from rllm_core.config.layers import Override, parse_override
from rllm_core.config.loading import load
from rllm_core.config.schema import (
    BenchmarkTable,
    Kind,
    ModelTable,
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
    "RunConfig",
    "RunSettings",
    "home",
    "load",
    "parse_override",
    "to_data",
    "to_toml",
    "writable_home",
]
