"""Documents of archives that a query finds, with their citations."""

from __future__ import annotations

from kb.results.base import Listing, Result, Row


class ArchiveDocument(Result):
    id: str
    title: str
    path: str
    url: str | None = None
    source: str  # "research" or "url-content"
    date: str
    score: float
    collection: str
    start_line: int
    end_line: int


class Highlight(Result):
    """Excerpts of a field as HTML with `<mark>` around matching words."""

    field: str
    snippets: list[str]


class ArchiveCitation(Result):
    source_id: str
    target_id: str | None = None
    target_url: str
    context: str
    confidence: float


class ArchiveCitations(Result):
    """What a document cites, and what cites it."""

    citing: list[ArchiveCitation]
    cited: list[ArchiveCitation]


class ArchiveRow(Row):
    document: ArchiveDocument
    highlights: list[Highlight]
    citations: ArchiveCitations | None = None


class ArchiveResults(Listing[ArchiveRow]):
    unsent = ("citations_cut",)

    results: list[ArchiveRow]
    notice: str | None = None
    citations_cut: str = ""  # what was left out of the citations
