"""Rows of a search, and what is related."""

from __future__ import annotations

from kb.results.base import InCollection, Listing, Located, Result

# From which relevance score on a row is called so, on a terminal and on the page (decision 8).
SCORE_WORDS = ((0.9, "very likely"), (0.7, "likely"), (0.4, "maybe"), (0.0, "unlikely"))


def score_word(score: float) -> str:
    return next(word for least, word in SCORE_WORDS if score >= least)


class SearchRow(InCollection, Located):
    """A passage that answers a query.

    `relevance_score` is the probability that it does, 0 to 1; `distance` the cosine distance, 0 to
    2, None without a vector; `chunk_index` counts from 1. `also_in` names copies and translations
    of the document that would be rows too, in another collection as COLLECTION/id.
    """

    document_id: str
    document_title: str
    url: str | None = None
    date: str | None = None  # if the search filters or sorts by it
    section_heading: str | None = None
    content: str
    relevance_score: float
    distance: float | None = None
    chunk_index: int
    total_chunks: int
    start_line: int
    end_line: int
    also_in: list[str] | None = None


class SearchResults(Listing[SearchRow]):
    results: list[SearchRow]
    truncated: bool | None = None
    notice: str | None = None


class BatchResult(Result):
    query: str
    results: list[SearchRow]


class BatchResults(Listing[BatchResult]):
    results: list[BatchResult]
    truncated: bool | None = None
    notice: str | None = None


class Source(InCollection):
    document: str


class RelatedRow(SearchRow):
    document: str


class RelatedResults(Listing[RelatedRow]):
    listed = "related"

    source: Source
    related: list[RelatedRow]
    truncated: bool | None = None
    notice: str | None = None
