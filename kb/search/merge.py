"""Merges the candidates of several files into one order.

A term's rarity, what is near to the best, and the background are computed from the candidates of
all files together, so that scores are comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kb.models.embedder import Floats
from kb.search.candidates import DEPTH, Budget, Candidates, FileQuery, candidates
from kb.search.evidence import absent_words, evidence_of
from kb.search.operators import Filters
from kb.search.query import Operand, Query
from kb.search.ranking import Evidence, Expected, expected, rank, shown
from kb.search.snapshot import Snapshot
from kb.store.chunks import ChunkRange, documents_of_chunks

MAX_DISTANCE = 2.0  # the greatest cosine distance
NEAR_A_VECTOR = Query("", (Operand("passage"),))  # with a word, as it must not be empty


class Hit(NamedTuple):
    """A passage of the answer: why, and how well it fits."""

    chunk_id: int
    document_id: int | None
    score: float  # orders the hits
    distance: float | None  # the true cosine; None while the chunk or the query has no vector
    keyword_rank: int | None = None  # from 1; None if the chunk is not in the list
    vector_rank: int | None = None
    evidence: Evidence | None = None  # None: the score comes from the distance alone
    is_by_words: bool = False  # every word is required, so meaning says nothing


def merge(
    files: Sequence[Candidates], limit: int | None, max_distance: float = MAX_DISTANCE
) -> list[tuple[int, Hit]]:
    """The best passages of all files, each with its file's number. `max_distance` below 2 drops
    passages whose distance is greater or unknown."""
    evidence = evidence_of(files)
    _, absent = absent_words(files)
    usual = expected(evidence)._replace(absent=absent)
    hits: list[tuple[int, Hit]] = []
    for number, (file, of_file) in enumerate(zip(files, evidence, strict=True)):
        if file.words is None:
            best = _by_meaning(file, limit, max_distance)
        else:
            near_enough = [
                passage
                for passage in of_file
                if max_distance >= MAX_DISTANCE
                or (passage.distance is not None and passage.distance <= max_distance)
            ]
            best = _by_evidence(file, near_enough, usual, limit)
        hits += [(number, hit) for hit in best]
    if len(files) > 1:
        hits.sort(key=lambda pair: -pair[1].score)  # stable: equal scores keep the files' order
    return hits[:limit]


def related_passages(
    snapshot: Snapshot,
    vector: Floats,
    within: ChunkRange,
    limit: int,
    *,
    without: set[int] | None = None,
) -> list[Hit]:
    """The passages of a range nearest to a vector, nearest first."""
    file_query = FileQuery(NEAR_A_VECTOR, vector, [within], Filters(without=without))
    answer = candidates(snapshot, file_query, Budget(limit, use_words=False))
    return [hit for _, hit in merge([answer], limit)]


def related_documents(
    snapshot: Snapshot,
    vector: Floats,
    within: ChunkRange,
    limit: int,
    *,
    without: set[int] | None = None,
) -> list[Hit]:
    """The documents of a range nearest to a vector, each by its nearest passage."""
    depth = max(DEPTH, limit * 10)
    while True:
        hits = related_passages(snapshot, vector, within, depth, without=without)
        document_of = documents_of_chunks(snapshot.connection, [hit.chunk_id for hit in hits])
        best: dict[int, Hit] = {}
        for hit in hits:
            best.setdefault(document_of[hit.chunk_id], hit)
        # All of the nearest passages may be one long document's: then look further.
        if len(best) >= limit or len(hits) < depth:
            return [*best.values()][:limit]
        depth *= 4


def _by_meaning(file: Candidates, limit: int | None, max_distance: float) -> list[Hit]:
    score = file.model.calibration.score
    return [
        Hit(chunk_id, None, shown(score(distance)), distance, vector_rank=rank)
        for rank, (chunk_id, distance) in enumerate(file.nearest[:limit], 1)
        if distance <= max_distance
    ]


def _by_evidence(
    file: Candidates, evidence: Sequence[Evidence], usual: Expected, limit: int | None
) -> list[Hit]:
    assert file.words is not None
    keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(file.words.scores, 1)}
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(file.nearest, 1)}
    is_exact = file.query.is_exact
    return [
        Hit(
            passage.chunk_id,
            passage.document_id,
            score,
            passage.distance,
            keyword_ranks.get(passage.chunk_id),
            vector_ranks.get(passage.chunk_id),
            passage,
            is_exact,
        )
        for passage, score in rank(evidence, file.readable, usual=usual, limit=limit)
    ]
