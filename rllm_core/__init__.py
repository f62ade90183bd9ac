"""The core of rLLM: contracts, the gateway, the engine, the training loop, the commands.

Importing this package is cheap on purpose; its rooms are imported when they are used.
"""

from rllm_core.hookspecs import API_VERSION, hookimpl

__all__ = ["API_VERSION", "__version__", "hookimpl"]

__version__ = "0.1.0"
