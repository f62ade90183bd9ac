"""Plain aligned columns, which any terminal, pipe and locale can show."""

import shutil
from collections.abc import Iterator, Sequence

__all__ = ["columns"]


def columns(rows: Sequence[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """Rows (the first is the heading) as lines.

    Where they do not fit the terminal, each row's last cell goes on a line of its own.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    sizes = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    *firsts, last = sizes
    wraps = sum(firsts) + 2 * len(firsts) + last > width
    for row in rows:
        *cells, end = row
        line = "  ".join(cell.ljust(size) for cell, size in zip(cells, firsts, strict=True))
        if wraps and end and row is not rows[0]:
            yield line.rstrip()
            yield f"    {end}"
        else:
            yield f"{line}  {end}".rstrip()
