"""Another project's distribution `rllm` has our facade's import name: noticing that.

Its files either lie elsewhere on `sys.path`, before ours, or have replaced ours in the same
folder, which its metadata there gives away.
"""

import importlib.util
from pathlib import Path

__all__ = ["foreign_rllm"]


def foreign_rllm() -> str | None:
    """The folder of a foreign `rllm` that hides ours, or None."""
    ours = Path(__file__).parents[2]
    try:
        spec = importlib.util.find_spec("rllm")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent.parent
    if found != ours:
        return str(found)
    replaced = any(ours.glob("rllm-[0-9]*.dist-info"))
    return str(found) if replaced else None
