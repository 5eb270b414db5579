"""Collections, documents and their parts."""

from __future__ import annotations

from typing import Any

from kb.results.base import InCollection, Listing, Located, Result, Row


class CollectionInfo(InCollection):
    """A collection: what it is called, what it contains and where that comes from."""

    document_count: int
    description: str | None = None
    version: str | None = None
    kind: str
    source: str  # "" if documents come in by calls
    base_url: str | None = None  # of a manifest
    metadata: dict[str, Any] | None = None  # of a manifest


class CollectionList(Listing[CollectionInfo]):
    listed = "collections"

    collections: list[CollectionInfo]
    notice: str | None = None


class DocumentInfo(Row):
    """A document of a list; `size` in characters."""

    id: str
    title: str
    size: int
    date: str | None = None  # if the list is sorted by it


class RecentDocument(InCollection):
    """A document and its date: of its front matter, its path, its commit or its file."""

    id: str
    title: str
    date: str


class FileRead(Result):
    """A file of the project that was read by `read_file` or `kb`, and when last (UTC)."""

    path: str
    reads: int
    last_read: str


class Recent(Result):
    """What is new and what was read last, the newest first."""

    documents: list[RecentDocument]
    read: list[FileRead]
    notice: str | None = None


class DocumentList(InCollection, Listing[DocumentInfo]):
    listed = "documents"

    documents: list[DocumentInfo]
    total: int
    has_more: bool
    truncated: bool | None = None
    notice: str | None = None


class DocumentPart(InCollection, Located):
    document: str
    url: str | None = None


class DocumentContent(DocumentPart):
    """A document's text, or a range of its lines, which count from 1."""

    title: str
    content: str
    total_lines: int
    start_line: int | None = None  # None if `content` is the whole document
    end_line: int | None = None
    notice: str | None = None


class OutlineRow(Located):
    """A heading; `level` 1 to 6."""

    level: int
    text: str
    line: int


class Outline(InCollection, Listing[OutlineRow]):
    listed = "outline"

    document: str
    title: str
    outline: list[OutlineRow]
    truncated: bool | None = None
    notice: str | None = None


class SectionAlternative(Result):
    section: str
    level: int
    start_line: int
    end_line: int | None = None  # of a subsection


class SectionContent(DocumentPart):
    """A section from its heading to its last line, without trailing blank lines."""

    section: str
    level: int
    content: str
    start_line: int
    end_line: int
    alternatives: list[SectionAlternative] | None = None
    subsections: list[SectionAlternative] | None = None  # to choose from, in place of their text
    notice: str | None = None
