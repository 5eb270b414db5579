"""Keyword list + vector list -> fused, scored chunks. The one place that ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.search.operators import chunk_filters, match_prefixes
from kb.search.query import Query, match_literally, match_query, scripts_asked
from kb.search.ranking import Candidate, meaning_weight, rank, script_bonus, spread
from kb.store.database import Connection, Row
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.vectors import nearest_chunks, query_blob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 100  # passages of each list that become candidates
KEYWORD_DEPTH = 300  # rows of a keyword list whose scores are known; 1,000 ranked no better
# bm25 weights of the keyword indexes' columns.
COLUMN_WEIGHTS = {"title": 3.0, "heading": 1.5, "body": 1.0, "extra": 1.0}
LITERAL_BONUS = 0.5  # above what any other evidence can add in most lists
LITERAL_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found: why, and how well.

    `fused_score` orders. Ranks count from 1 and are None where a list did not hold the chunk.
    `distance` is the true cosine distance, None while the chunk or the query has no vector.
    """

    chunk_id: int
    fused_score: float
    keyword_rank: int | None
    vector_rank: int | None
    distance: float | None


def search(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    *,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    limit: int = 10,
    max_distance: float = 2.0,
    use_keywords: bool = True,
    english_model: bool = True,
    filters: tuple[set[int] | None, set[int] | None] | None = None,
    depth: int = DEPTH,
) -> list[Hit]:
    """The best chunks for a query, best first.

    Args:
        vector: the query's unit vector; None when there is no model: keywords alone.
        ranges: where to look, each a range of chunk ids.
        max_distance: leaves out rows whose distance is known and greater.
        english_model: the vectors mean little for text in other scripts.
        use_keywords: False orders by distance alone; operators are still enforced.
        filters: what `chunk_filters` gives, for who enforces the operators in another way.
        depth: passages of each list that become candidates.
    """
    if query.asks_for_nothing:
        return []  # an empty text is near to nothing in particular
    only, without = filters or chunk_filters(connection, query, ranges)
    if only is not None and not only:
        return []
    match = ""
    if use_keywords or vector is None:
        parts = [match_query(query), *match_prefixes(connection, query)]
        match = " OR ".join(filter(None, parts))
    keyword_list = keyword_hits(
        connection, match, ranges, max(KEYWORD_DEPTH, depth), only=only, without=without
    )
    vector_list: list[tuple[int, float]] = []
    if vector is not None:
        vector_list = nearest_chunks(
            connection,
            vector,
            ranges,
            depth,
            only=None if only is None else sorted(only),
            without=None if without is None else sorted(without),
        )
        if not use_keywords:
            return [
                Hit(chunk_id, 1 - distance, None, rank, distance)
                for rank, (chunk_id, distance) in enumerate(vector_list[:limit], 1)
                if distance <= max_distance
            ]
    keyword_scores = dict(keyword_list)
    literal = literal_hits(connection, query, ranges, only, without) if match else {}
    ids = dict.fromkeys(
        [*literal, *list(keyword_scores)[:depth], *(chunk_id for chunk_id, _ in vector_list)]
    )
    if only is not None and len(ids) < DEPTH:
        # What the operators let pass is found, even where no single word of it ranks.
        ids |= dict.fromkeys(sorted(only.difference(ids))[:DEPTH])
    document_scores = dict(document_hits(connection, match, ranges, KEYWORD_DEPTH))
    weight = 0.0 if vector is None else meaning_weight(query.text, english_model)
    blob = None if vector is None else query_blob(vector)
    asked = scripts_asked(query)
    ranked = rank(
        [
            Candidate(
                chunk_id,
                document_id,
                keyword_scores.get(chunk_id, 0.0),
                document_scores.get(document_id, 0.0),
                None if distance is None else 1 - distance,
                None if document_distance is None else 1 - document_distance,
                literal.get(chunk_id, 0.0) + script_bonus(asked, beginning),
            )
            for chunk_id, document_id, distance, document_distance, beginning in connection.tuples(
                "candidates", query=blob, chunk_ids=json.dumps(list(ids))
            )
        ],
        weight,
    )
    keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(keyword_scores, 1)}
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(vector_list, 1)}
    hits = [
        Hit(
            one.chunk_id,
            score,
            keyword_ranks.get(one.chunk_id),
            vector_ranks.get(one.chunk_id),
            None if one.cosine is None else 1 - one.cosine,
        )
        for one, score in spread(ranked)
        if one.cosine is None or 1 - one.cosine <= max_distance
    ]
    return hits[:limit]


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
    ranges: Iterable[ChunkRange],
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> dict[int, float]:
    """Passages that hold the query's very words in a row, and what that adds to their score.

    Somebody who types an error message or the name of an option wants its occurrence first.
    """
    match = match_literally(query)
    if not match:
        return {}
    found = keyword_hits(connection, match, ranges, LITERAL_DEPTH, only=only, without=without)
    return dict.fromkeys((chunk_id for chunk_id, _ in found), LITERAL_BONUS)


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


def load_rows(connection: Connection, chunk_ids: Sequence[int]) -> list[Row]:
    """What is shown of each chunk, in the order asked for."""
    rows = connection.rows("hit_rows", chunk_ids=json.dumps(list(chunk_ids)))
    by_id = {row["chunk_id"]: row for row in rows}
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def load_documents(connection: Connection, chunk_ids: Sequence[int]) -> list[str]:
    """The path of each chunk's document, in the order asked for."""
    rows = connection.tuples("chunk_documents", chunk_ids=json.dumps(list(chunk_ids)))
    by_id = dict(rows)
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]
