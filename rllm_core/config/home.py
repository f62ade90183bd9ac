"""RLLM_HOME: the folder of runs, providers, keys and caches (`~/.rllm` unless it is set)."""

import os
from collections.abc import Mapping
from pathlib import Path

from rllm_core.errors import ConfigError

__all__ = ["home", "writable_home"]


def home(environ: Mapping[str, str] | None = None) -> Path:
    """Where the home is, whether it exists or not."""
    named = (os.environ if environ is None else environ).get("RLLM_HOME")
    if named:
        return Path(named).expanduser().absolute()
    try:
        return Path.home() / ".rllm"
    except RuntimeError:
        raise ConfigError(
            "there is no home directory", remedy="set RLLM_HOME to a folder that you may write to"
        ) from None


def writable_home(*parts: str) -> Path:
    """A folder below the home, made where it is missing, readable by its owner alone."""
    base = home()
    folder = base.joinpath(*parts)
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK | os.X_OK)
        reason = "you may not write to it"
    except OSError as error:
        usable, reason = False, error.strerror or str(error)
    if not usable:
        raise ConfigError(
            f"cannot use {folder}: {reason}",
            remedy="set RLLM_HOME to a folder that you may write to",
        )
    return folder
