"""Where the lines of a converted document stand in its file: page, slide, sheet or cell."""

from __future__ import annotations

from typing import Any

from kb.store.connection import Connection, Row

__all__ = ["place_fields", "place_of_lines"]

_NUMBERED = ("page", "slide", "cell")


def place_fields(row: Row) -> dict[str, Any]:
    """`{"page": 3, "endPage": 4}` from a row's place columns; nothing where it has no place.

    The end is told where it is another page, slide, sheet or cell than the beginning.
    """
    kind, label, last = row["place_kind"], row["place_label"], row["last_place_label"]
    if not isinstance(kind, str):
        return {}
    fields = {kind: _value(kind, str(label))}
    if last is not None and last != label:
        fields[f"end{kind.capitalize()}"] = _value(kind, str(last))
    return fields


def place_of_lines(
    connection: Connection, document_id: int, first: int, last: int
) -> dict[str, Any]:
    """The place of some lines of a document."""
    row = connection.row(
        "places_of_lines", document_id=document_id, start_line=first, end_line=last
    )
    return place_fields(row) if row is not None else {}


def _value(kind: str, label: str) -> int | str:
    return int(label) if kind in _NUMBERED and label.isdigit() else label
