"""Finding runs under RLLM_HOME, and names for new ones."""

import difflib
import secrets
from pathlib import Path

from rllm_core.errors import ConfigError, RllmError
from rllm_core.store.reader import RunInfo, RunReader
from rllm_core.store.schema import DATABASE

__all__ = ["find_run", "list_runs", "new_run_id", "runs_directory"]


def runs_directory() -> Path:
    """Where runs lie that were given no directory of their own."""
    from rllm_core.config import home

    runs: Path = home() / "runs"
    return runs


def new_run_id() -> str:
    """Four hex digits (more where those are used up) that no run has."""
    runs = runs_directory()
    for tries in range(1000):
        run_id = secrets.token_hex(2 + tries // 50)
        # what is all digits, or one number in e notation, reads as a number in TOML and shells
        if not run_id.replace("e", "").isdigit() and not (runs / run_id).exists():
            return run_id
    raise AssertionError("unreachable: twenty bytes of randomness were all taken")


def list_runs() -> list[Path]:
    """The directories of all runs, the newest first."""
    found = [path.parent for path in runs_directory().glob(f"*/{DATABASE}")]
    return sorted(found, key=lambda path: (path / DATABASE).stat().st_ctime, reverse=True)


def find_run(ref: str) -> Path:
    """The directory of a run from its id, the beginning of its id, its name, or its path.

    ConfigError where nothing or several fit, with the nearest ids.
    """
    runs = runs_directory()
    for path in (runs / ref, Path(ref).expanduser()):
        if ref and (path / DATABASE).is_file():
            return path
    known = [info for path in list_runs() if (info := _info(path)) is not None]
    fitting = [run for run in known if run.name == ref]
    fitting = fitting or [run for run in known if ref and run.id.startswith(ref)]
    if len(fitting) == 1:
        return fitting[0].directory
    if fitting:
        ids = ", ".join(run.id for run in fitting)
        raise ConfigError(f"{ref!r} fits several runs: {ids}", remedy="give the id in full")
    names = [run.id for run in known] + [run.name for run in known if run.name]
    near = ", ".join(difflib.get_close_matches(ref, names, n=3))
    raise ConfigError(
        f"there is no run {ref!r} in {runs}" + (f"; near it: {near}" if near else ""),
        remedy="`rllm runs list` shows the runs there are; a path works too",
    )


def _info(directory: Path) -> RunInfo | None:
    """The run, or None where it cannot be read: one broken run hides no other."""
    try:
        reader = RunReader(directory)
    except RllmError:
        return None
    info = reader.info
    reader.close()
    return info
