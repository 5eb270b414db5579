"""Comma-separated values: the columns are the heading of the rows, which keep their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from kb.formats.outline import MAXIMUM_HEADING, Block, Body, Heading, one_line

__all__ = ["read_table"]

SAMPLE = 64_000  # characters by which the separator is told
_SEPARATORS = ",;\t|"
MOST_FIELD = 10_000_000  # characters; the module's own limit is 131,072


def read_table(text: str, lines: Sequence[str], path: str) -> Body:
    """The header as heading, so that every passage and every row found says what its columns mean.

    A table whose first line has numbers has no header.
    """
    separator = "\t" if path.lower().endswith(".tsv") else _separator(text)
    first = _first_record(text, separator)
    if first is None:
        return Body((), [Block(1, len(lines), "table")] if lines else [], "", {})
    names, end = first
    blocks = [Block(1, end, "heading")]
    if end < len(lines):
        blocks.append(Block(end + 1, len(lines), "table"))
    heading = Heading(2, " | ".join(names)[:MAXIMUM_HEADING], 1, end)
    return Body([heading], blocks, "", {})


def _separator(text: str) -> str:
    try:
        return csv.Sniffer().sniff(text[:SAMPLE], delimiters=_SEPARATORS).delimiter
    except csv.Error:
        return ","


def _first_record(text: str, separator: str) -> tuple[list[str], int] | None:
    """The names of the columns and the line in which they end."""
    csv.field_size_limit(MOST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names = [one_line(name) for name in next(reader)]
    except (csv.Error, StopIteration):
        return None
    if not any(names) or any(_is_number(name) for name in names):
        return None
    return names, reader.line_num


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
