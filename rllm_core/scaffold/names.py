"""Names that a user gives to something new: checked before anything is written."""

import re

from rllm_core.errors import ConfigError

__all__ = ["checked_name"]

# PEP 503's normal form, and a letter first, so that a Python class can be called after it.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 30  # so that what is written keeps to a hundred columns
_DEVICES = {
    "aux",
    "con",
    "nul",
    "prn",
    *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789"),
}


def checked_name(name: str, what: str, reserved: frozenset[str] = frozenset()) -> str:
    """The name, or a ConfigError that says how it must be and proposes the nearest."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:_LONGEST].strip("-")
        raise ConfigError(
            f"{name!r} cannot be the name of a {what}",
            remedy=(f"try {near!r}   " if _NAME.fullmatch(near) else "")
            + f"lower-case letters, digits and single dashes, a letter first, at most {_LONGEST}",
        )
    if name in reserved or name in _DEVICES:
        raise ConfigError(f"{name!r} is a reserved name", remedy="choose another")
    return name
