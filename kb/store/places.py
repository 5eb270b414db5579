"""Where the lines of a converted document stand in its file: page, slide, sheet or cell."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from kb.store.connection import Connection

__all__ = ["Places", "places_of"]

_NUMBERED = ("page", "slide", "cell")


class Places:
    """The places of some documents, each from a line on up to the next one's."""

    def __init__(self, rows: Iterable[tuple[int, int, str, str]]) -> None:
        self._by_document: dict[int, list[tuple[int, str, str]]] = {}
        for document_id, line, kind, label in rows:
            self._by_document.setdefault(document_id, []).append((line, kind, label))

    def fields(self, document_id: int, first: int, last: int) -> dict[str, Any]:
        """`{"page": 3, "endPage": 4}` for some lines of a document; nothing without a place.

        The end is told where it is another page, slide, sheet or cell than the beginning.
        """
        begin = self._at(document_id, first)
        if begin is None:
            return {}
        _, kind, label = begin
        fields = {kind: _value(kind, label)}
        *_, last_label = self._at(document_id, last) or begin
        if last_label != label:
            fields[f"end{kind.capitalize()}"] = _value(kind, last_label)
        return fields

    def _at(self, document_id: int, line: int) -> tuple[int, str, str] | None:
        places = self._by_document.get(document_id, [])
        index = bisect_right(places, line, key=lambda place: place[0])
        return places[index - 1] if index else None


def places_of(connection: Connection, document_ids: Iterable[int]) -> Places:
    """The places of some documents."""
    listed = json.dumps(sorted(set(document_ids)))
    return Places(connection.tuples("places_of_documents", document_ids=listed))


def _value(kind: str, label: str) -> int | str:
    return int(label) if kind in _NUMBERED and label.isdigit() else label
