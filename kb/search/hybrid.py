"""Keyword list + vector list -> evidence -> scored chunks, best first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.search.candidates import bodies
from kb.search.coverage import (
    Unit,
    greatest_of_documents,
    measure,
    rows_titled,
    telling,
    units,
)
from kb.search.operators import Filters, chunk_filters, match_prefixes
from kb.search.query import Query, match_alternatives, match_literally, scripts_asked
from kb.search.ranking import COLUMN_WEIGHTS, Evidence, rank, readable_share, script_fit, shown
from kb.store.chunks import paths_of_chunks
from kb.store.database import Connection, Row
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.vectors import nearest_chunks, query_blob
from kb.text.terms import words as split_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 100  # passages of each list that become candidates
KEYWORD_DEPTH = 300  # rows of a keyword list whose scores are known; 1,000 ranked no better
LITERAL_DEPTH = 50
MOST_TITLE_WORDS = 3  # of a query that may be a title
FARTHEST = 2.0  # the greatest cosine distance


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found: why, and how well.

    `score` orders. Ranks count from 1 and are None where a list did not hold the chunk.
    `distance` is the true cosine distance, None while the chunk or the query has no vector.
    """

    chunk_id: int
    score: float
    distance: float | None
    keyword_rank: int | None = None
    vector_rank: int | None = None
    evidence: Evidence | None = None  # what the score comes from; None: from the distance alone


def search(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    *,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    limit: int = 10,
    max_distance: float = 2.0,
    use_keywords: bool = True,
    calibration: Calibration | None = None,
    english_model: bool = True,
    filters: Filters | None = None,
    depth: int = DEPTH,
) -> list[Hit]:
    """The best chunks for a query, best first.

    A query of required words alone is judged by its words, with a vector or without, so that it
    needs none; the vector only tells the distances.

    Args:
        vector: the query's unit vector; None when there is no model: words alone.
        ranges: where to look, each a range of chunk ids.
        max_distance: if below 2, leaves out rows whose distance is greater or not known.
        use_keywords: False is meaning alone; operators are still enforced.
        calibration: of the model that made the vectors.
        english_model: the vectors mean little for text in other scripts.
        filters: what `chunk_filters` gives, for who enforces the operators in another way.
        depth: passages of each list that become candidates.
    """
    if query.asks_for_nothing:
        return []  # an empty text is near to nothing in particular
    only, without = filters or chunk_filters(connection, query, ranges)
    if only is not None and not only:
        return []
    calibration = calibration or BUNDLED_CALIBRATION
    if vector is not None and not use_keywords:
        # As deep as ever: the sign bits that propose candidates find fewer of the nearest few.
        nearest = _nearest(connection, vector, ranges, max(limit, depth), only, without)
        return [
            Hit(chunk_id, shown(calibration.score(distance)), distance, vector_rank=rank)
            for rank, (chunk_id, distance) in enumerate(nearest[:limit], 1)
            if distance <= max_distance
        ]
    found = gather(
        connection,
        query,
        vector,
        ranges=ranges,
        calibration=calibration,
        english_model=english_model,
        filters=(only, without),
        depth=depth,
    )
    keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(found.keyword_list, 1)}
    vector_ranks = {chunk_id: rank for rank, chunk_id in enumerate(found.vector_list, 1)}
    hits = []
    for ranked in rank(found.evidence, found.readable):
        chunk_id = ranked.evidence.chunk_id
        distance = found.distances[chunk_id]
        if max_distance < FARTHEST and (distance is None or distance > max_distance):
            continue
        hits.append(
            Hit(
                chunk_id,
                ranked.score,
                distance,
                keyword_ranks.get(chunk_id),
                vector_ranks.get(chunk_id),
                ranked.evidence,
            )
        )
    return hits[:limit]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known of all candidates of a query, before they are ranked.

    Attributes:
        readable: the share of the query that the model can read.
        distances: None where there is no vector.
        keyword_list, vector_list: chunk ids, best first.
    """

    evidence: list[Evidence]
    readable: float
    distances: dict[int, float | None]
    keyword_list: list[int]
    vector_list: list[int]


def gather(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    *,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    calibration: Calibration | None = None,
    english_model: bool = True,
    filters: Filters = (None, None),
    depth: int = DEPTH,
) -> Gathered:
    """The candidates of both lists with all evidence; arguments as those of `search`."""
    only, without = filters
    nearest: list[tuple[int, float]] = []
    if vector is not None and not query.is_exact:
        nearest = _nearest(connection, vector, ranges, depth, only, without)
    words = _word_lists(connection, query, ranges, depth, only, without)
    ids = dict.fromkeys(
        [*words.literal, *list(words.chunks)[:depth], *(chunk_id for chunk_id, _ in nearest)]
    )
    if query.must and only is not None and len(ids) < DEPTH:
        # What the operators let pass is found, even where no single word of it ranks.
        ids |= dict.fromkeys(sorted(only.difference(ids))[:DEPTH])
    calibration = calibration or BUNDLED_CALIBRATION
    evidence = _evidence(connection, query, vector, calibration, words, list(ids))
    readable = readable_share(query.text) if english_model else 1.0
    return Gathered(
        [one for one, _ in evidence],
        0.0 if query.is_exact else readable,
        {one.chunk_id: distance for one, distance in evidence},
        list(words.chunks),
        [chunk_id for chunk_id, _ in nearest],
    )


def _nearest(
    connection: Connection,
    vector: NDArray[np.float32],
    ranges: Sequence[ChunkRange],
    depth: int,
    only: set[int] | None,
    without: set[int] | None,
) -> list[tuple[int, float]]:
    return nearest_chunks(
        connection,
        vector,
        ranges,
        depth,
        only=None if only is None else sorted(only),
        without=None if without is None else sorted(without),
    )


@dataclass(frozen=True, slots=True)
class _WordLists:
    """What the keyword indexes say: scores by id, best first, and what they are made of."""

    alternatives: list[str]
    units: list[Unit]
    chunks: dict[int, float]
    documents: dict[int, float]
    literal: list[int]


def _word_lists(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    depth: int,
    only: set[int] | None,
    without: set[int] | None,
) -> _WordLists:
    prefixes = match_prefixes(connection, query)
    alternatives = telling(connection, [*match_alternatives(query), *prefixes.values()])
    match = " OR ".join(alternatives)
    most = max(KEYWORD_DEPTH, depth)
    found = keyword_hits(connection, match, ranges, most, only=only, without=without)
    documents = document_hits(connection, match, ranges, most)
    literal = literal_hits(connection, query, ranges, only, without)
    units_ = units(query, prefixes)
    return _WordLists(alternatives, units_, dict(found), dict(documents), literal)


def _evidence(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    calibration: Calibration,
    words: _WordLists,
    chunk_ids: Sequence[int],
) -> list[tuple[Evidence, float | None]]:
    """What is known of each passage, and its distance."""
    blob = None if vector is None else query_blob(vector)
    rows = connection.tuples("candidates", query=blob, chunk_ids=json.dumps(chunk_ids))
    passages = measure(connection, words.units, words.alternatives, chunk_ids)
    greatest = greatest_of_documents(connection, words.alternatives)
    titled: set[int] = set()
    if len(words.units) <= MOST_TITLE_WORDS:
        titled = rows_titled(connection, words.units, chunk_ids)
    asked = scripts_asked(query)
    asked_title = _plain(query.text)
    literal = set(words.literal) if len(split_words(query.text)) > 1 else set()
    typed = _typed(connection, query, words.literal)
    of_document: dict[int, tuple[float, float | None, float, bool]] = {}
    found: list[tuple[Evidence, float | None]] = []
    for chunk_id, document_id, distance, document_distance, title, beginning in rows:
        if document_id not in of_document:
            of_document[document_id] = (
                _share(words.documents.get(document_id, 0.0), greatest),
                None if document_distance is None else calibration.standard(1 - document_distance),
                script_fit(asked, beginning),
                _plain(title) == asked_title,
            )
        document_words, document_cosine, script, is_title = of_document[document_id]
        one = Evidence(
            chunk_id,
            document_id,
            _share(words.chunks.get(chunk_id, 0.0), passages.greatest_score),
            document_words,
            passages.held.get(chunk_id, 0.0),
            passages.rarity,
            None if distance is None else calibration.standard(1 - distance),
            None if distance is None else document_cosine,
            script,
            chunk_id in titled,
            chunk_id in literal,
            chunk_id in typed,
            is_title,
        )
        found.append((one, distance))
    return found


def _plain(title: str) -> str:
    """A title as it is compared with a query."""
    return " ".join(title.split()).rstrip(".?!").casefold()


def _share(score: float, greatest: float) -> float:
    return score / greatest if greatest > 0 else 0.0


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


def _typed(connection: Connection, query: Query, literal: Sequence[int]) -> set[int]:
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


def load_rows(connection: Connection, chunk_ids: Sequence[int]) -> list[Row]:
    """What is shown of each chunk, in the order asked for."""
    rows = connection.rows("hit_rows", chunk_ids=json.dumps(list(chunk_ids)))
    by_id = {row["chunk_id"]: row for row in rows}
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def load_documents(connection: Connection, chunk_ids: Sequence[int]) -> list[str]:
    """The path of each chunk's document, in the order asked for."""
    by_id = paths_of_chunks(connection, chunk_ids)
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]
