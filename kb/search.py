"""Keyword list + vector list -> fused, scored chunks. The one place that ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kb.database import Connection, Row
from kb.query import Query, match_excluded, match_operators, match_query
from kb.vectors import nearest_chunks, query_blob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 100  # rows of each list that take part in the fusion
RECIPROCAL_RANK_CONSTANT = 60  # Cormack, Clarke, Buettcher 2009
# bm25 weights of the keyword index's columns.
COLUMN_WEIGHTS = {"title": 2.0, "heading": 1.5, "body": 1.0, "extra": 1.0}
WHOLE_FILE = (0, (1 << 63) - 1)

ChunkRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found: why, and how well.

    Ranks count from 1 and are None where a list did not hold the chunk. `distance` is the true
    cosine distance, None while the chunk or the query has no vector.
    """

    chunk_id: int
    fused_score: float
    keyword_rank: int | None
    vector_rank: int | None
    distance: float | None


def collection_range(collection_id: int) -> ChunkRange:
    """The chunk ids that belong to a collection."""
    return collection_id << 32, (collection_id << 32) + 0xFFFFFFFF


def search(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    *,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    limit: int = 10,
    max_distance: float = 2.0,
    use_keywords: bool = True,
) -> list[Hit]:
    """The best chunks for a query, best first.

    Args:
        vector: the query's unit vector; None when there is no model: keywords alone.
        ranges: where to look, each a range of chunk ids.
        max_distance: leaves out rows whose distance is known and greater.
        use_keywords: False ranks by vectors alone; operators are still enforced.
    """
    if query.only_excludes:
        return []
    keyword_list = keyword_hits(connection, query, ranges) if use_keywords or vector is None else []
    vector_list: list[tuple[int, float]] = []
    if vector is not None:
        only, without = _operator_filters(connection, query, ranges)
        vector_list = nearest_chunks(connection, vector, ranges, DEPTH, only=only, without=without)
    fused = _fuse([chunk_id for chunk_id, _ in keyword_list], [row for row, _ in vector_list])
    distances = dict(vector_list)
    if vector is not None:
        missing = [chunk_id for chunk_id in fused if chunk_id not in distances]
        distances.update(chunk_distances(connection, vector, missing))
    keyword_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(keyword_list, 1)}
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(vector_list, 1)}
    hits = [
        Hit(
            chunk_id,
            score,
            keyword_ranks.get(chunk_id),
            vector_ranks.get(chunk_id),
            distances.get(chunk_id),
        )
        for chunk_id, score in sorted(fused.items(), key=lambda item: (-item[1], item[0]))
        if distances.get(chunk_id, 0.0) <= max_distance
    ]
    return hits[:limit]


def keyword_hits(
    connection: Connection, query: Query, ranges: Iterable[ChunkRange], depth: int = DEPTH
) -> list[tuple[int, float]]:
    """Chunk ids with their bm25 rank (lower is better), best first."""
    match = match_query(query)
    if not match:
        return []
    found: list[tuple[int, float]] = []
    for first, last in ranges:
        found += connection.tuples(
            "keyword_hits", match=match, first=first, last=last, limit=depth, **COLUMN_WEIGHTS
        )
    found.sort(key=lambda row: (row[1], row[0]))
    return found[:depth]


def chunk_distances(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int]
) -> dict[int, float]:
    """The cosine distance of each chunk that has a vector."""
    if not chunk_ids:
        return {}
    rows = connection.tuples(
        "chunk_distances", query=query_blob(vector), chunk_ids=json.dumps(list(chunk_ids))
    )
    return dict(rows)


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


def _operator_filters(
    connection: Connection, query: Query, ranges: Iterable[ChunkRange]
) -> tuple[list[int] | None, list[int] | None]:
    """The only chunks, and the chunks to leave out, by a query's operators."""
    must, excluded = match_operators(query), match_excluded(query)
    only = _matching_chunks(connection, must, ranges) if must else None
    without = _matching_chunks(connection, excluded, ranges) if excluded and not must else None
    return only, without


def _matching_chunks(connection: Connection, match: str, ranges: Iterable[ChunkRange]) -> list[int]:
    return [
        chunk_id
        for first, last in ranges
        for (chunk_id,) in connection.tuples(
            "matching_chunk_ids", match=match, first=first, last=last
        )
    ]


def _fuse(*lists: Sequence[int]) -> dict[int, float]:
    """Reciprocal rank fusion: sum over the lists of 1 / (k + rank)."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, chunk_id in enumerate(ranked, 1):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + 1 / (RECIPROCAL_RANK_CONSTANT + rank)
    return scores
