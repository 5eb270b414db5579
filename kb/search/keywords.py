"""The lists that the keyword indexes give for a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.search.candidates import bodies
from kb.search.coverage import Unit, telling, units
from kb.search.operators import match_prefixes
from kb.search.query import Query, match_alternatives, match_literally
from kb.search.ranking import COLUMN_WEIGHTS
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

DEPTH = 300  # rows of a list whose scores are known; 1,000 ranked no better
LITERAL_DEPTH = 50


@dataclass(frozen=True, slots=True)
class WordLists:
    """What the keyword indexes say: scores by id, best first, and what they are made of.

    Attributes:
        counted: in how many passages each of `alternatives` is, as far as it was counted.
    """

    alternatives: list[str]
    counted: Mapping[str, int]
    units: list[Unit]
    chunks: dict[int, float]
    documents: dict[int, float]
    literal: list[int]


def word_lists(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    depth: int,
    only: set[int] | None,
    without: set[int] | None,
) -> WordLists:
    """What the indexes say of a query, in ids that its operators let pass."""
    prefixes = match_prefixes(connection, query)
    alternatives, counted = telling(connection, [*match_alternatives(query), *prefixes.values()])
    match = " OR ".join(alternatives)
    most = max(DEPTH, depth)
    found = keyword_hits(connection, match, ranges, most, only=only, without=without)
    documents = document_hits(connection, match, ranges, most)
    literal = literal_hits(connection, query, ranges, only, without)
    units_ = units(query, prefixes)
    return WordLists(alternatives, counted, units_, dict(found), dict(documents), literal)


def keyword_hits(
    connection: Connection,
    match: str,
    ranges: Iterable[ChunkRange],
    depth: int,
    *,
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> list[tuple[int, float]]:
    """Chunk ids with their bm25 score (positive, higher is better), best first.

    Args:
        only: no other chunk is considered; `without`: these are not.
    """
    if only is not None:
        listed = json.dumps(sorted(only))
        return _index_hits(connection, "keyword_hits_among", match, ranges, depth, chunk_ids=listed)
    if without:
        listed = json.dumps(sorted(without))
        return _index_hits(
            connection, "keyword_hits_except", match, ranges, depth, chunk_ids=listed
        )
    return _index_hits(connection, "keyword_hits", match, ranges, depth)


def document_hits(
    connection: Connection, match: str, ranges: Iterable[ChunkRange], depth: int
) -> list[tuple[int, float]]:
    """Document ids with their bm25 score (positive, higher is better), best first."""
    return _index_hits(connection, "document_hits", match, ranges, depth)


def literal_hits(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> list[int]:
    """Passages that hold the query's very words in a row.

    Somebody who types an error message or the name of an option wants its occurrence first.
    """
    match = match_literally(query)
    if not match:
        return []
    found = keyword_hits(connection, match, ranges, LITERAL_DEPTH, only=only, without=without)
    return [chunk_id for chunk_id, _ in found]


def typed(connection: Connection, query: Query, literal: Sequence[int]) -> set[int]:
    """Of the passages with the query's words in a row, those with its very characters."""
    text = " ".join(query.text.split()).casefold()
    if text.replace(" ", "").isalnum():
        return set()
    return {
        chunk_id
        for chunk_id, _, *texts in bodies(connection, literal)
        if any(text in " ".join(one.split()).casefold() for one in texts)
    }


def _index_hits(
    connection: Connection,
    statement: str,
    match: str,
    ranges: Iterable[ChunkRange],
    depth: int,
    **parameters: Any,
) -> list[tuple[int, float]]:
    if not match:
        return []
    parameters |= {"match": match, "limit": depth, **COLUMN_WEIGHTS}
    found: list[tuple[int, float]] = []
    for first, last in ranges:
        found += connection.tuples(statement, first=first, last=last, **parameters)
    found.sort(key=lambda row: (row[1], row[0]))
    return [(row_id, -score) for row_id, score in found[:depth]]
