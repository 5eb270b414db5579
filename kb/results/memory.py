"""What was learned about a project."""

from __future__ import annotations

from typing import Any

from kb.results.base import Listing, Result, Row, SnakeResult


class Discovery(Row):
    """What an assistant or a person learned about a project."""

    id: str
    type: str  # "pattern", "rule", "decision" or "issue"
    content: str
    module: str | None = None  # None: the whole project
    session: str | None = None
    date: str  # UTC
    score: float | None = None  # of a search
    source: str
    superseded_by: str | None = None  # the id of its correction


class NearDiscovery(Result):
    """What was known before, and may be what a new discovery corrects."""

    id: str
    type: str
    content: str
    score: float


class Discoveries(Listing[Discovery]):
    results: list[Discovery]
    total_found: int
    notice: str | None = None


class RecordedDiscovery(Result):
    id: str
    type: str
    module: str | None = None
    status: str  # "recorded" or "merged"
    supersedes: str | None = None
    nearest: list[NearDiscovery] | None = None
    notice: str | None = None


class ForgottenDiscovery(Result):
    id: str
    type: str
    module: str | None = None
    status: str = "forgotten"
    notice: str | None = None  # why a trace may be left, and what to do then


BLANK_CONTENT = "Content must be a non-empty string"


class IndexRow(SnakeResult, Row):
    doc_id: str
    score: float
    highlights: list[str]
    metadata: dict[str, Any]


class ParsedQuery(SnakeResult):
    """A query as it was searched."""

    terms: list[str]
    must: list[str]
    must_not: list[str]
    phrases: list[str]


class IndexResults(SnakeResult, Listing[IndexRow]):
    """Documents, best first; `total_matches` counts all that match."""

    results: list[IndexRow]
    total_matches: int
    query_parsed: ParsedQuery
    truncated: bool | None = None
    notice: str | None = None


class AddedDocument(SnakeResult):
    status: str  # "indexed" or "re-indexed"
    doc_id: str
    token_count: int
    notice: str | None = None


class CreatedIndex(SnakeResult):
    status: str
    index_name: str
    backend: str
    notice: str | None = None
