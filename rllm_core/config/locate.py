"""Where each key of a TOML text stands: dotted path → line number.

tomllib checks the text and gives the values; this small scanner only finds the lines. It
knows tables, arrays of tables (numbered as `benchmark.0`), dotted and quoted keys, comments
and values that span lines. Keys of inline tables belong to the line of their value's start.
"""

import re
from collections import Counter
from collections.abc import Iterator

__all__ = ["lines_of"]

_HEADER = re.compile(r"^\s*(\[\[?)([^\]]+?)\]\]?\s*(#.*)?$")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|=|$)""")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*|[\[\]{}]|\n|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line (from 1) of every table and key of a valid TOML text."""
    places: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    arrays: Counter[tuple[str, ...]] = Counter()
    for number, statement in _statements(text):
        header = _HEADER.match(statement)
        if header:
            table = _numbered(tuple(_key(header[2])), arrays, header[1] == "[[")
            places.setdefault(table, number)
        elif "=" in statement:
            path = (*table, *_key(statement))
            places.setdefault(path, number)
    return places


def _numbered(
    path: tuple[str, ...], arrays: "Counter[tuple[str, ...]]", repeated: bool
) -> tuple[str, ...]:
    """A table's path with the position of each array of tables that it lies in."""
    full: tuple[str, ...] = ()
    for depth, part in enumerate(path, 1):
        full = (*full, part)
        if repeated and depth == len(path):
            arrays[full] += 1
        if arrays[full]:
            full = (*full, str(arrays[full] - 1))
    return full


def _key(text: str) -> Iterator[str]:
    """The parts of a dotted key, up to its `=`."""
    position = 0
    while match := _PART.match(text, position):
        yield next(part for part in match.groups()[:3] if part is not None)
        if match[4] != ".":
            return
        position = match.end()


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each statement: a header or a key with its whole value."""
    number, start, depth, parts = 1, 1, 0, [""]
    for piece in _TOKEN.findall(text + "\n"):
        if piece == "\n" and depth <= 0:
            if statement := "".join(parts).strip():
                yield start, statement
            parts, depth = [], 0
            number += 1
            start = number
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece, 0)
        if not piece.startswith("#"):
            parts.append(piece)
        number += piece.count("\n")
