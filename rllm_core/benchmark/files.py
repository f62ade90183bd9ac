"""JSONL files of rows: read line by line, every fault told with its file and line."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rllm_core.errors import ConfigError

__all__ = ["MAX_LINE", "Located", "Row", "read_jsonl", "unknown_column"]

Row = Mapping[str, Any]
"""One row of a data set: column name → value."""

MAX_LINE = 64 * 1024 * 1024
"""Bytes a line may have; a file without line ends would otherwise be read whole."""


@frozen
class Located:
    """One row, and where it stands ("data.jsonl:12", "openai/gsm8k test row 3")."""

    place: str
    row: Row


def read_jsonl(path: str | Path) -> Iterator[Located]:
    """The rows of a JSONL file, lazily. Blank lines are skipped.

    Raises ConfigError for a file that is missing, empty or not UTF-8, and for a line that is
    no JSON object or longer than `MAX_LINE`.
    """
    file = Path(path).expanduser()
    _check_file(file)
    found = False
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            place = f"{path}:{number}"
            if len(line) > MAX_LINE:
                raise ConfigError(
                    f"{place}: the line is longer than {MAX_LINE >> 20} MiB",
                    remedy="a JSONL file has one JSON object a line",
                )
            text = _decode(line, place)
            if text:
                found = True
                yield Located(place, _parse(text, place))
    if not found:
        raise ConfigError(f"{path} is empty", remedy="it needs one JSON object a line")


def _check_file(file: Path) -> None:
    if file.is_file():
        return
    if file.is_dir():
        raise ConfigError(f"{file} is a directory, not a JSONL file")
    siblings = [p.name for p in file.parent.glob("*.json*")] if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.name, siblings, n=1, cutoff=0.5)
    hint = f"did you mean {file.parent / near[0]}?" if near else f"looked for {file.absolute()}"
    raise ConfigError(f"there is no file {file}", remedy=hint)


def _decode(line: bytes, place: str) -> str:
    try:
        return line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        bad = line[error.start]
        raise ConfigError(
            f"{place}: not UTF-8 (byte {bad:#04x} at column {error.start + 1})",
            remedy="save the file as UTF-8",
        ) from error


def _parse(text: str, place: str) -> Row:
    try:
        row = json.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{place}: nested too deeply") from error
    except ValueError as error:
        what = getattr(error, "msg", str(error))
        column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(
            f"{place}: not valid JSON ({what}{column}): {text:.60}",
            remedy="a JSONL file has one JSON object a line",
        ) from error
    if not isinstance(row, dict):
        raise ConfigError(
            f"{place}: a {type(row).__name__}, where a row must be a JSON object: {text:.60}",
            remedy='write each row on one line as {"column": value, …}',
        )
    return row


def unknown_column(place: str, column: str, row: Row, *, remedy: str = "") -> ConfigError:
    """The error for a column that a row lacks: where, which there are, and the nearest."""
    near = difflib.get_close_matches(column, row, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    there = ", ".join(map(repr, row)) or "none"
    return ConfigError(
        f"{place}: there is no column {column!r}; the row has {there}",
        remedy=f"{hint}{remedy}".strip() or None,
    )
