"""Rows -> Markdown tables that keep their header, however long they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["cell_text", "table_lines"]

# Rows of one piece of a table, in characters: about what one passage holds, so that every
# passage shows what its columns mean.
PIECE_CHARACTERS = 700
_LEAST_ROWS = 4  # a piece with a long header has as many all the same

_BREAK = re.compile(r"\s*\n\s*")


def cell_text(value: object) -> str:
    """A value for a cell of a Markdown table."""
    text = _BREAK.sub(" ", str(value).strip()) if value is not None else ""
    return text.replace("\\", "\\\\").replace("|", "\\|")


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose first row is the header; a long one in pieces.

    Every piece is a table of its own under the same header, with a blank line before it.
    """
    if not rows:
        return
    width = max(map(len, rows))
    header = _line(rows[0], width)
    rule = "|" + " --- |" * width
    size = count = 0
    yield header
    yield rule
    for row in rows[1:]:
        line = _line(row, width)
        if size + len(line) > PIECE_CHARACTERS - len(header) and count >= _LEAST_ROWS:
            yield ""
            yield header
            yield rule
            size = count = 0
        yield line
        size += len(line) + 1
        count += 1


def _line(row: Sequence[str], width: int) -> str:
    return "| " + " | ".join([*row, *[""] * (width - len(row))]) + " |"
