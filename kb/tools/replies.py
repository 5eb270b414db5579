"""Result types of the documents family, and the budget that bounds every reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NotRequired, TypeVar

from typing_extensions import TypedDict

DEFAULT_REPLY_TOKENS = 20_000
# About what tokenizers of current models make of English and of everything else.
ASCII_CHARACTERS_PER_TOKEN = 4

T = TypeVar("T")


class CollectionRow(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    documentCount: int
    description: NotRequired[str]
    version: NotRequired[str]


class Collections(TypedDict):
    collections: list[CollectionRow]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class DocumentRow(TypedDict):
    id: str
    title: str
    size: int


class DocumentList(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    documents: list[DocumentRow]
    total: int
    hasMore: bool
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class SearchRow(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    documentId: str
    documentTitle: str
    sectionHeading: NotRequired[str]
    content: str
    relevanceScore: NotRequired[float]
    distance: NotRequired[float]
    chunkIndex: int
    totalChunks: int
    startLine: int
    endLine: int


class SearchResults(TypedDict):
    results: list[SearchRow]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class BatchRow(TypedDict):
    query: str
    results: list[SearchRow]


class BatchResults(TypedDict):
    results: list[BatchRow]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class DocumentContent(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    document: str
    title: str
    content: str
    totalLines: int
    startLine: NotRequired[int]
    endLine: NotRequired[int]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class OutlineRow(TypedDict):
    level: int
    text: str
    line: int


class Outline(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    document: str
    title: str
    outline: list[OutlineRow]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class SectionAlternative(TypedDict):
    section: str
    level: int
    startLine: int


class SectionContent(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    document: str
    section: str
    level: int
    content: str
    startLine: int
    endLine: int
    alternatives: NotRequired[list[SectionAlternative]]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class Source(TypedDict):
    collection: str
    collectionId: NotRequired[str]
    document: str


class RelatedRow(SearchRow):
    document: str


class RelatedResults(TypedDict):
    source: Source
    related: list[RelatedRow]
    truncated: NotRequired[bool]
    notice: NotRequired[str]


def estimate_tokens(text: str) -> int:
    """About how many tokens of an assistant's context a text takes."""
    if text.isascii():
        return len(text) // ASCII_CHARACTERS_PER_TOKEN + 1
    ascii_count = sum(map(str.isascii, text))
    return ascii_count // ASCII_CHARACTERS_PER_TOKEN + (len(text) - ascii_count) + 1


def rows_within(rows: Sequence[T], tokens: int) -> list[T]:
    """The first rows that fit into a budget as JSON, at least one."""
    kept: list[T] = []
    for row in rows:
        tokens -= estimate_tokens(json.dumps(row, ensure_ascii=False))
        if kept and tokens < 0:
            break
        kept.append(row)
    return kept


def lines_within(lines: Sequence[str], tokens: int) -> tuple[str, int, bool]:
    """The first lines that fit into a budget, at least one, joined; their number; whether cut.

    A first line that alone is too long is cut inside.
    """
    for count, line in enumerate(lines):
        cost = estimate_tokens(json.dumps(line, ensure_ascii=False))
        if cost > tokens:
            if count:
                return "\n".join(lines[:count]), count, True
            # Of the densest text every character may be a token.
            return line[: max(tokens, 1)], 1, True
        tokens -= cost
    return "\n".join(lines), len(lines), False


def cut(result: Any, notice: str) -> None:
    """Say in a result that something was left out, and how to get the rest."""
    result["truncated"] = True
    add_notice(result, notice)


def add_notice(result: Any, notice: str) -> None:
    """Add a sentence for the reader of a result."""
    if notice:
        result["notice"] = f"{result['notice']} {notice}" if "notice" in result else notice
