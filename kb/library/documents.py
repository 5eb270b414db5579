"""Collections, documents and their parts: listed and read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kb.formats.convert.formats import format_of
from kb.formats.convert.result import REMARKS
from kb.library.reading import first_line, read_lines
from kb.library.resolve import OpenDocument, read_document, read_page
from kb.library.workspace import Workspace
from kb.results.base import estimate_tokens
from kb.results.documents import (
    CollectionInfo,
    CollectionList,
    DocumentContent,
    DocumentInfo,
    DocumentList,
    FileRead,
    Outline,
    OutlineRow,
    Recent,
    RecentDocument,
    SectionAlternative,
    SectionContent,
)
from kb.search.files import SearchedFile
from kb.store.connection import Connection, Row
from kb.store.contents import (
    Origins,
    address_of,
    count_waiting,
    documents_of_collections,
    newest_documents,
    sections_of,
)
from kb.store.projects import all_projects
from kb.store.sessions import files_read_last
from kb.text.counted import counted

MAX_ALTERNATIVES = 20  # sections that a heading also names
MAX_SUBSECTIONS = 60
SUBSECTION_TOKENS = 18  # of a row in their list, beside its heading


class Documents(Workspace):
    def list_collections(self) -> CollectionList:
        """The collections of all files, with their sizes and sources."""
        answers, notice = self.ask_all(_collections_of)
        rows: dict[str, CollectionInfo] = {}
        for row in (row for part in answers.values() for row in part):
            count = row.document_count  # of a shard's collection, which others have as well
            if row.collection in rows:
                count += rows[row.collection].document_count
            rows[row.collection] = replace(row, document_count=count)
        return CollectionList(collections=[*rows.values()], notice=notice or None)

    def count_waiting(self) -> int:
        """How many passages wait for a vector, and until then are found by their words alone."""
        return sum(self.ask_all(_waiting)[0].values())

    def project_roots(self) -> list[str]:
        """The folders of the projects whose external documentation is in the file."""
        with self.database.read() as connection:
            if not self.names.collections(connection, ("external",)):
                return []
            return list(dict.fromkeys(row["root"] for row in all_projects(connection)))

    def list_documents(
        self, collection: str, *, limit: int | None = None, offset: int = 0, sort: str = "id"
    ) -> DocumentList:
        """A collection's documents; all of them without a `limit`.

        Args:
            sort: "id", or "date": newest first, each with its date.
        """
        offset *= bool(limit)
        page = read_page(self, collection, limit or -1, offset, sort)
        return DocumentList(
            **page.called._asdict(),
            documents=[DocumentInfo(**document) for document in page.documents],
            total=page.total,
            has_more=offset + len(page.documents) < page.total,
        )

    def recent(self, *, limit: int = 20) -> Recent:
        """The documents with the newest dates and the files read last, at most `limit` of each."""
        parts, notice = self.ask_all(_recent, limit)
        documents = [document for part, _ in parts.values() for document in part]
        read = [FileRead(**row) for _, rows in parts.values() for row in rows]
        documents.sort(key=lambda row: (row.collection_id or row.collection, row.id))
        documents.sort(key=lambda document: document.date, reverse=True)
        read.sort(key=lambda row: row.last_read, reverse=True)
        return Recent(documents=documents[:limit], read=read[:limit], notice=notice or None)

    def get(
        self,
        document: str,
        *,
        collection: str = "",
        start_line: int = 0,
        end_line: int = 0,
        start_character: int = 0,
        max_tokens: int | None = None,
    ) -> DocumentContent:
        """A document's text, or a range of its lines.

        Args:
            start_line: from 1; 0 for the beginning.
            end_line: included; 0 for the end.
            start_character: how many characters of the first line to skip.
            max_tokens: about how many tokens the text may take; `notice` then says how to go on.

        Raises:
            UsageError: the range is empty, or the name ambiguous.
        """
        lines = start_line, end_line, start_character
        return read_document(self, document, collection, _content, *lines, max_tokens)[0]

    def outline(
        self, document: str, *, collection: str = "", max_depth: int = 6, start_line: int = 0
    ) -> Outline:
        """A document's headings with levels and lines, from a line on."""
        return read_document(self, document, collection, _outline, max_depth, start_line)[0]

    def section(
        self,
        document: str,
        heading: str,
        *,
        collection: str = "",
        include_subsections: bool = True,
        max_characters: int | None = None,
        max_tokens: int | None = None,
    ) -> SectionContent:
        """One section by its heading, given loosely, by a path (`Install > Linux`) or an anchor.

        Args:
            max_characters: a longer section that has subsections is cut to its beginning and a
                list of these.
        """
        budget = max_characters, max_tokens
        return read_document(
            self, document, collection, _section, heading, include_subsections, *budget
        )[0]


def _recent(
    file: SearchedFile, connection: Connection, limit: int
) -> tuple[list[RecentDocument], list[Row]]:
    """The newest documents of a file, and the files read last."""
    newest = newest_documents(connection, file.names.collections(connection), limit)
    documents = [
        RecentDocument(**file.names.called({"name": name})._asdict(), **document)
        for name, document in newest
    ]
    return documents, files_read_last(connection, limit)


def _content(
    reading: OpenDocument, start_line: int, end_line: int, skipped: int, max_tokens: int | None
) -> DocumentContent:
    row, total = reading.row, reading.row["line_count"]
    first = first_line(start_line, end_line, total, "document")
    part = read_lines(row["content"], first, end_line, max_tokens, skipped=skipped)
    last = min(part.end_line, max(total, first))
    is_part = bool(start_line or end_line or part.rest)
    location = _location_of(reading)(first, last) if is_part else {}
    return DocumentContent(
        **location,
        **reading.names,
        url=address_of(row, row["path"]),
        title=row["title"],
        content=part.content,
        total_lines=total,
        start_line=first if is_part else None,
        end_line=last if is_part else None,
        truncated=bool(part.rest) or None,
        notice=f"The reply is full: go on with {part.rest}." if part.rest else None,
    )


def _outline(reading: OpenDocument, max_depth: int, start_line: int) -> Outline:
    row = reading.row
    sections = sections_of(reading.connection, row["document_id"])
    location = _location_of(reading)
    # A document that is text says in its front matter what it likes.
    is_converted = format_of(row["path"]) is not None
    remarks = json.loads(row["metadata"]).get(REMARKS) if is_converted else None
    return Outline(
        **reading.names,
        title=row["title"],
        outline=[
            OutlineRow(
                **location(section["start_line"], section["start_line"]),
                level=section["level"],
                text=section["heading"],
                line=section["start_line"],
            )
            for section in sections
            if section["level"] <= max_depth and section["start_line"] >= start_line
        ],
        notice=f"Conversion: {'; '.join(remarks)}." if remarks else None,
    )


def _section(
    reading: OpenDocument,
    heading: str,
    include_subsections: bool,
    max_characters: int | None,
    max_tokens: int | None,
) -> SectionContent:
    from kb.search.sections import find_section  # here: listing and reading need no anchors

    row = reading.row
    sections = sections_of(reading.connection, row["document_id"])
    section, alternatives = find_section(sections, heading, row["path"], row["content"])
    end = section["end_line"] if include_subsections else section["body_end_line"]
    below: list[Row] = []
    if include_subsections and max_characters:
        below = _below(section, sections, row["content"], max_characters)
    if below:
        lines = row["content"].split("\n")[: below[0]["start_line"] - 1]
        end = "\n".join(lines).rstrip().count("\n") + 1
    if len(below) > MAX_SUBSECTIONS:
        level = min(lower["level"] for lower in below)
        below = [lower for lower in below if lower["level"] == level]
    if below and max_tokens:
        max_tokens //= 2  # the other half is for the list
    listed = _first_of(below, max_tokens)
    part = read_lines(row["content"], section["start_line"], end, max_tokens)
    location = _location_of(reading)(part.start_line, part.end_line)
    notices = []
    if (more := len(alternatives) - MAX_ALTERNATIVES) > 0:
        notices.append(
            f"{counted(more, 'more heading matches', 'more headings match')}: name the one "
            'meant by its path, such as "Install > Linux".'
        )
    if below:
        rest = "".join(
            f"; documents_get_outline lists more from startLine {row['start_line']}"
            for row in below[len(listed) :][:1]
        )
        notices.append(f"The section is long: read a subsection by its name or lines{rest}.")
    if part.rest:
        notices.append(f"The reply is full: go on with documents_get_document, {part.rest}.")
    return SectionContent(
        **location,
        **reading.names,
        url=address_of(row, row["path"]),
        section=section["heading"],
        level=section["level"],
        content=part.content,
        start_line=part.start_line,
        end_line=part.end_line,
        alternatives=_places(alternatives[:MAX_ALTERNATIVES]),
        subsections=_places(listed, has_ends=True),
        truncated=bool(part.rest or below) or None,
        notice=" ".join(notices) or None,
    )


def _places(sections: Sequence[Row], *, has_ends: bool = False) -> list[SectionAlternative] | None:
    return [
        SectionAlternative(
            section=row["heading"],
            level=row["level"],
            start_line=row["start_line"],
            end_line=row["end_line"] if has_ends else None,
        )
        for row in sections
    ] or None


def _first_of(below: Sequence[Row], max_tokens: int | None) -> Sequence[Row]:
    """The first subsections, as many as a list of so many tokens can name."""
    room = math.inf if max_tokens is None else max_tokens
    for count, row in enumerate(below[:MAX_SUBSECTIONS]):
        room -= estimate_tokens(row["heading"]) + SUBSECTION_TOKENS
        if room < 0:
            return below[: max(count, 1)]
    return below[:MAX_SUBSECTIONS]


def _below(section: Row, sections: Sequence[Row], text: str, max_characters: int) -> list[Row]:
    first, last = section["start_line"], section["end_line"]
    if len("\n".join(text.split("\n")[first - 1 : last])) <= max_characters:
        return []
    return [row for row in sections if first < row["start_line"] <= last]


def _waiting(_: SearchedFile, connection: Connection) -> int:
    return count_waiting(connection)


def _collections_of(file: SearchedFile, connection: Connection) -> list[CollectionInfo]:
    infos, counts = [], documents_of_collections(connection)
    for row in file.names.collections(connection, named=True):
        options = json.loads(row["options"])
        infos.append(
            CollectionInfo(
                **file.names.called(row)._asdict(),
                document_count=counts[row["collection_id"]],
                description=row["description"] or None,
                version=row["version"] or None,
                kind=row["kind"],
                source=row["source"],
                base_url=options.get("base_url") or None,
                metadata=options.get("manifest") or None,
            )
        )
    return infos


def _location_of(reading: OpenDocument) -> Callable[[int, int], dict[str, Any]]:
    """Maps lines of a document to its pages, slides, sheets or cells."""
    document_id = reading.row["document_id"]
    return partial(Origins(reading.connection, [document_id]).location, document_id)
