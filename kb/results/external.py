"""A project's own documentation: its activation, and search results."""

from __future__ import annotations

from kb.results.base import Listing, Row, SnakeResult


class DocumentType(SnakeResult):
    name: str
    doc_count: int


class SyncProblem(SnakeResult):
    path: str
    message: str


class ExternalDocsReport(SnakeResult):
    path: str
    added: int
    updated: int
    deleted: int
    unchanged: int
    errors: list[SyncProblem]


class ActivationResult(SnakeResult):
    status: str
    project_name: str
    branch_name: str
    path_hash: str
    doc_types: list[DocumentType]
    total_docs: int
    external_docs: ExternalDocsReport | None = None
    warnings: list[str] | None = None
    notice: str | None = None


class ExternalRow(SnakeResult, Row):
    """A document at its best passage; `char_count` in characters."""

    path: str
    title: str
    summary: str | None = None
    date: str | None = None  # if the search filters or sorts by it
    char_count: int
    relevance_score: float
    start_line: int
    end_line: int


class ExternalResults(SnakeResult, Listing[ExternalRow]):
    """Documents at or above the threshold, best first; `total_matches` counts all of them."""

    results: list[ExternalRow]
    total_matches: int
    external_docs_path: str
    truncated: bool | None = None
    notice: str | None = None
