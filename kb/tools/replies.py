"""Result types of the documents family, and the budget that bounds every reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NotRequired, TypeVar

from typing_extensions import TypedDict

DEFAULT_REPLY_TOKENS = 20_000
# About what tokenizers of current models make of English and of everything else.
ASCII_CHARACTERS_PER_TOKEN = 4

SHORTEST_TEXT = 40  # characters that are left of a text which is cut
# What other calls are made with: a part of it names nothing.
EXACT_KEYS = frozenset(
    "id path document documentId collection collectionId doc_id file uri sourceId targetId "
    "targetUrl from to".split()
)

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


class Placed(TypedDict):
    """Where the text stands in a file that was converted; the end where it is another one."""

    page: NotRequired[int]
    endPage: NotRequired[int]
    slide: NotRequired[int]
    endSlide: NotRequired[int]
    sheet: NotRequired[str]
    endSheet: NotRequired[str]
    cell: NotRequired[int]
    endCell: NotRequired[int]


class SearchRow(Placed):
    collection: str
    collectionId: NotRequired[str]
    documentId: str
    documentTitle: str
    sectionHeading: NotRequired[str]
    content: str
    relevanceScore: float
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


class DocumentContent(Placed):
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


class OutlineRow(Placed):
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


class SectionContent(Placed):
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
    """The first rows that fit into a budget as JSON, at least one.

    A first row that alone is too large is returned with its texts shortened: see `shortened`.
    """
    kept: list[T] = []
    for row in rows:
        cost = cost_of(row)
        if cost > tokens:
            return kept or [shortened(row, tokens)]
        tokens -= cost
        kept.append(row)
    return kept


def shared_rows(lists: Sequence[Sequence[T]], tokens: int) -> list[list[T]]:
    """The first rows of several lists that fit together: each list's first, then the second ones.

    A list has none where there is no room for its first.
    """
    kept: list[list[T]] = [[] for _ in lists]
    full = [False] * len(lists)
    share = tokens // max(len(lists), 1)
    for rank in range(max(map(len, lists), default=0)):
        for own, rows, number in zip(kept, lists, range(len(lists)), strict=True):
            if rank >= len(rows) or full[number]:
                continue
            row = rows[rank]
            if rank == 0 and cost_of(row) > share:
                row = shortened(row, share)
            cost = cost_of(row)
            full[number] = cost > tokens
            if not full[number]:
                tokens -= cost
                own.append(row)
    return kept


def shortened(value: T, tokens: int) -> T:
    """A row whose longest texts are cut until it fits, or until they are too short to be cut.

    A row that was cut says so: `truncated` is true in it.
    """
    if not isinstance(value, dict) or cost_of(value) <= tokens:
        return value
    row: Any = json.loads(json.dumps(value, ensure_ascii=False))
    row["truncated"] = True
    while cost_of(row) > tokens:
        place = _longest_text(row)
        if place is None:
            break
        holder, key = place
        text = holder[key]
        surplus = cost_of(row) - tokens
        most = max(SHORTEST_TEXT, min(len(text) - surplus, 3 * len(text) // 4))
        holder[key] = f"{text[:most].rstrip()} …"
    return row  # type: ignore[no-any-return]


def _longest_text(value: Any) -> tuple[Any, Any] | None:
    """The holder and key of the longest text in a row that is worth to be cut."""
    longest: tuple[int, Any, Any] = (SHORTEST_TEXT + 2, None, None)
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in pairs:
            if isinstance(inner, dict | list):
                waiting.append(inner)
            elif isinstance(inner, str) and len(inner) > longest[0] and key not in EXACT_KEYS:
                longest = (len(inner), holder, key)
    return None if longest[1] is None else longest[1:]


def cost_of(row: Any) -> int:
    """About how many tokens a row takes as JSON."""
    return estimate_tokens(json.dumps(row, ensure_ascii=False, separators=(",", ":"))) + 1


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
