"""A document as the page shows it: its own lines, numbered, with headings, links and a passage.

The text is not turned into HTML by its format: every line stands where citations say it stands,
whatever the format, and no document can cost more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.search.results import file_of
from kb.server.page.render import document_address
from kb.store.citation_graph import citations_made, citations_received
from kb.store.collections import all_collections
from kb.store.connection import Connection, Row
from kb.store.contents import documents_shown, sections_of
from kb.store.names import Names
from kb.tools.session import Session

__all__ = ["shown_document"]

MOST_LINES = 3000  # of one page
MOST_CHARACTERS = 400_000
LONGEST_LINE = 20_000
MOST_CITATIONS = 300
BEFORE = 200  # lines above a passage far down in a long document
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Line:
    """A line in pieces: text and where it leads, or ""."""

    number: int
    pieces: Sequence[tuple[str, str]]
    level: int  # of a heading; 0: none
    is_code: bool
    is_passage: bool


def shown_document(
    session: Session, collection: str, document: str, first: int, last: int
) -> dict[str, Any]:
    """All that the document's page needs.

    Args:
        first, last: the lines to mark; 0: none.

    Raises:
        CollectionNotFound, DocumentNotFound: with the nearest names.
    """
    with session.read_collection(collection) as (connection, row, origin):
        found = origin.names.document(connection, row, document, collection)
        sections = sections_of(connection, found["document_id"])
        made = citations_made(connection, found["document_id"], MOST_CITATIONS)
        received = citations_received(connection, found["document_id"], MOST_CITATIONS)
        addresses = _addresses(origin.names, connection, [*made, *received])
        sources = {one["name"]: one["source"] for one in all_collections(connection)}
    lines = found["content"].split("\n")
    if lines and not lines[-1]:
        lines.pop()
    start, end = _window(lines, first)
    return {
        **origin.names.shown(row),
        "name": row["name"],
        "id": found["path"],
        "title": found["title"] or found["path"],
        "file": file_of({"collection": row["name"], "documentId": found["path"]}, sources),
        "lines": _lines(lines, start, end, (first, last or first), sections, made, addresses),
        "outline": sections,
        "cites": [_cited(one, "target_document_id", addresses) for one in made],
        "cited_by": [_cited(one, "source_document_id", addresses) for one in received],
        "total": len(lines),
        "before": max(1, start - MOST_LINES) if start > 1 else 0,
        "after": end + 1 if end < len(lines) else 0,
        "first": first,
        "last": last or first,
    }


def _window(lines: Sequence[str], first: int) -> tuple[int, int]:
    """The lines of one page, the first and the last."""
    start = max(1, first - BEFORE) if first > MOST_LINES - BEFORE else 1
    end, room = start - 1, MOST_CHARACTERS
    while end < len(lines) and end - start + 1 < MOST_LINES and room > 0:
        room -= min(len(lines[end]), LONGEST_LINE)
        end += 1
    return start, end


def _lines(
    lines: Sequence[str],
    start: int,
    end: int,
    passage: tuple[int, int],
    sections: Sequence[Row],
    made: Sequence[Row],
    addresses: Mapping[int, Row],
) -> list[Line]:
    levels = {section["start_line"]: section["level"] for section in sections}
    links: dict[int, list[Row]] = {}
    for one in made:
        links.setdefault(one["line"], []).append(one)
    shown, code = [], ""
    for number in range(start, end + 1):
        text = lines[number - 1][:LONGEST_LINE]
        fence = _FENCE.match(text)
        is_code = bool(code or fence)
        if fence and fence[1].startswith(code):
            code = "" if code else fence[1]
        pieces = _pieces(text, links.get(number, ()), addresses)
        is_passage = passage[0] <= number <= passage[1]
        shown.append(Line(number, pieces, levels.get(number, 0), is_code, is_passage))
    return shown


def _pieces(text: str, links: Sequence[Row], addresses: Mapping[int, Row]) -> list[tuple[str, str]]:
    """The text cut where an address of a link stands in it."""
    places = []
    for link in links:
        where, url = text.find(link["target_url"]), link["target_url"]
        leads = _leads_to(link["target_document_id"], url, addresses)
        if where >= 0 and leads:
            places.append((where, where + len(url), leads))
    pieces, done = [], 0
    for first, last, leads in sorted(places):
        if first < done:
            continue
        pieces += [(text[done:first], ""), (text[first:last], leads)]
        done = last
    return [piece for piece in [*pieces, (text[done:], "")] if piece[0]]


def _leads_to(document_id: int | None, url: str, addresses: Mapping[int, Row]) -> str:
    if document_id is not None and document_id in addresses:
        row = addresses[document_id]
        return document_address(row["shown"], row["path"])
    return url if url.casefold().startswith(_WEB) else ""


def _cited(row: Row, end: str, addresses: Mapping[int, Row]) -> dict[str, Any]:
    """A citation with the other document's name and address."""
    other = addresses.get(row[end])
    line = row["line"] if end == "source_document_id" else 0
    return {
        "label": (other["title"] or other["path"]) if other else row["target_url"],
        "place": f"{other['shown']}/{other['path']}" if other else "",
        "address": document_address(other["shown"], other["path"], line)
        if other
        else _leads_to(None, row["target_url"], addresses),
        "line": row["line"],
        "context": " ".join(row["context"].split()),
        "is_similar": row["confidence"] < 1,
        "is_web": row[end] is None,
    }


def _addresses(names: Names, connection: Connection, citations: Sequence[Row]) -> dict[int, Row]:
    """The documents at the other ends, by their row ids."""
    keys = ("source_document_id", "target_document_id")
    ids = {row[key] for row in citations for key in keys} - {None}
    found = documents_shown(connection, ids)
    return {
        id_: {**row, "shown": names.called({"name": row["collection"]}).collection}
        for id_, row in found.items()
    }
