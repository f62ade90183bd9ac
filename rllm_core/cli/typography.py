"""How numbers and curves are written to a terminal, in Unicode or in plain ASCII.

A C locale, or a stream that cannot encode them, gets no ± and no block characters; text
from outside (task ids, error messages) is escaped where the stream cannot hold it.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from attrs import frozen

from rllm_core.statistics import Estimate

__all__ = ["ASCII", "UNICODE", "Typography", "counted", "duration", "number", "short", "tally"]


@frozen
class Typography:
    """The characters to write with."""

    encoding: str
    plus_minus: str
    dot: str
    arrow: str
    times: str
    levels: str
    full: str
    empty: str

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> "Typography":
        """What fits a stream under the locale of the environment."""
        locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
        plain = locale in ("C", "POSIX") or encoding not in ("utf-8", "utf8")
        return ASCII if plain else UNICODE

    def clean(self, text: str) -> str:
        """Text from outside, on one line, with escapes for what cannot be written."""
        return self.escaped(" ".join(text.split()))

    def escaped(self, text: str) -> str:
        """Text from outside, with escapes for what cannot be written and control codes."""
        shown = "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)
        return shown.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def join(self, parts: Iterable[str]) -> str:
        """Facts on one line."""
        return f" {self.dot} ".join(part for part in parts if part)

    def estimate(self, estimate: Estimate | None) -> str:
        """A mean and its standard error: 0.38 ± 0.04."""
        return "no grade" if estimate is None else self.value(estimate.mean, estimate.se)

    def value(self, mean: float, se: float | None = None) -> str:
        """A number with its standard error, where there is one."""
        return number(mean) if se is None else f"{number(mean)} {self.plus_minus} {number(se)}"

    def curve(self, values: Sequence[float], width: int = 12) -> str:
        """A sparkline of at most `width` characters; rewards in [0, 1] keep that scale."""
        if not values:
            return ""
        points = [sum(part) / len(part) for part in _parts(values, width)]
        low, high = (0.0, 1.0)
        if min(points) < low or max(points) > high:
            low, high = min(points), max(points)
        top, span = len(self.levels) - 1, (high - low) or 1.0
        return "".join(self.levels[round((x - low) / span * top)] for x in points)

    def bar(self, done: int, total: int, width: int = 20) -> str:
        """A progress bar."""
        filled = width if total <= 0 else min(width, width * done // total)
        return self.full * filled + self.empty * (width - filled)


UNICODE = Typography("utf-8", "±", "·", "→", "×", "▁▂▃▄▅▆▇█", "━", "╌")
ASCII = Typography("ascii", "+-", "-", "->", "x", "_.-:=+*#", "#", ".")


def number(x: float) -> str:
    """Two decimals, none where the number is large."""
    return f"{x:.2f}" if abs(x) < 1000 else f"{x:,.0f}"


def counted(n: int, noun: str) -> str:
    """1 episode; 1,920 episodes."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def tally(counts: Mapping[str, int]) -> str:
    """3 infra, 1 timeout: the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in ordered if n)


def duration(seconds: float) -> str:
    """42 s; 3 min 20 s; 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def short(path: Path) -> str:
    """A path with ~ for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _parts(values: Sequence[float], width: int) -> list[Sequence[float]]:
    if len(values) <= width:
        return [[x] for x in values]
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [values[a:b] for a, b in itertools.pairwise(edges)]
