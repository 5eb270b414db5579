"""Spreadsheets: a heading for each sheet, and its tables with their header."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator, Sequence
from typing import Any

import python_calamine

from kb.formats.convert.packed import Package
from kb.formats.convert.plain import protected
from kb.formats.convert.result import Converted, ConverterError, Place
from kb.formats.convert.tables import cell_text, table_lines
from kb.formats.convert.word import core_properties

__all__ = ["convert"]

MOST_CHARACTERS = 5_000_000  # of a workbook


def convert(data: bytes, name: str) -> Converted:
    """All sheets in order; a formula shows the value that was last calculated."""
    package = Package(data, "Excel")
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except python_calamine.CalamineError as error:
        raise ConverterError(f"is damaged or no Excel file: {error}") from error
    lines: list[str] = []
    places: list[Place] = []
    characters = 0
    notices: list[str] = []
    for sheet_name in workbook.sheet_names:
        try:
            rows = workbook.get_sheet_by_name(sheet_name).to_python(skip_empty_area=True)
        except python_calamine.CalamineError as error:
            notices.append(f'the sheet "{sheet_name}" cannot be read: {error}')
            continue
        tables = list(_tables(rows))
        if not tables:
            continue
        places.append(Place(len(lines) + 1, "sheet", sheet_name))
        lines += [f"## {' '.join(sheet_name.split())}", ""]
        for table in tables:
            for line in _lines(table):
                characters += len(line) + 1
                if characters > MOST_CHARACTERS:
                    break
                lines.append(line)
            lines.append("")
        if characters > MOST_CHARACTERS:
            notices.append(
                f"only the first {MOST_CHARACTERS:,} characters were read, up to the sheet "
                f'"{sheet_name}"'
            )
            break
    properties = core_properties(package)
    title = properties.pop("title", "")
    text = "\n".join(lines).rstrip("\n") + "\n" if lines else ""
    return Converted(text, title, tuple(places), properties, tuple(notices))


def _tables(rows: Sequence[Sequence[Any]]) -> Iterator[list[list[str]]]:
    """The rows in groups that empty rows divide, without the columns that a group leaves empty."""
    group: list[list[str]] = []
    for row in [*rows, []]:
        values = [cell_text(_shown(value)) for value in row]
        if any(values):
            group.append(values)
        elif group:
            used = [
                column
                for column in range(max(map(len, group)))
                if any(column < len(one) and one[column] for one in group)
            ]
            yield [[one[c] if c < len(one) else "" for c in used] for one in group]
            group = []


def _lines(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines above a table that fill one cell are its caption; one column alone is plain text."""
    start = 0
    while start < len(table) and sum(map(bool, table[start])) == 1:
        yield protected("".join(table[start]))
        yield ""
        start += 1
    yield from table_lines(table[start:])


def _shown(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date()
    return value
