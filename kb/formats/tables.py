"""Comma-separated values: the header is a heading, the rows are a table."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from itertools import islice

from kb.formats.outline import MAXIMUM_HEADING, Block, Body, Heading, one_line

SAMPLE = 64_000  # characters by which the separator is told
RECORDS = 20  # among them
_SEPARATORS = ",;\t|"
MOST_FIELD = 10_000_000  # characters; the module's own limit is 131,072


def read(text: str, lines: Sequence[str], path: str) -> Body:
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
    return Body([Heading(2, " | ".join(names)[:MAXIMUM_HEADING], 1, end)], blocks, "", {})


def _separator(text: str) -> str:
    """The sign that gives most of the first records as many fields as the header.

    `csv.Sniffer` takes quadratic time (38 s for 64 kB) and lets no other thread run.
    """

    def agreement(separator: str) -> tuple[int, int]:
        counts: list[int] = []
        with contextlib.suppress(csv.Error):
            reader = csv.reader(io.StringIO(text[:SAMPLE], newline=""), delimiter=separator)
            counts.extend(len(record) for record in islice(reader, RECORDS) if record)
        is_table = counts and counts[0] > 1
        return (counts.count(counts[0]), counts[0]) if is_table else (0, 0)

    return max(_SEPARATORS, key=agreement)


def _first_record(text: str, separator: str) -> tuple[list[str], int] | None:
    csv.field_size_limit(MOST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names = [one_line(name) for name in next(reader)]
    except (csv.Error, StopIteration):
        return None
    for name in names:
        with contextlib.suppress(ValueError):
            float(name.replace(",", "."))
            return None
    return (names, reader.line_num) if any(names) else None
