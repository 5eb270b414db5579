"""Keyword list + vector list -> evidence -> scored chunks, best first."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.models.embedder import Calibration
from kb.search.coverage import coverage, document_shares
from kb.search.feedback import fed_back
from kb.search.keywords import WordLists
from kb.search.lookup import LookedUp, look_up, rows_titled
from kb.search.operators import Filters
from kb.search.proposed import Proposed, propose
from kb.search.query import Query, scripts_asked
from kb.search.ranking import (
    Evidence,
    background,
    nearest_by_document,
    rank,
    readable_share,
    script_fit,
    shown,
)
from kb.store.citation_keys import page_key
from kb.store.connection import Connection
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.vectors import query_blob
from kb.text.terms import words as split_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 100  # passages of each list that become candidates
# Of candidates by words and by meaning those whose documents are looked at as a whole.
PROMISING = 40
MOST_TITLE_WORDS = 3  # of a query that may be a title
LONGEST_PATH = 300  # characters
MOST_NAMED = 20  # documents of whose path a query is the end
FARTHEST = 2.0  # the greatest cosine distance


class Hit(NamedTuple):
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
    max_distance: float = FARTHEST,
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
    collected = collect(
        connection,
        query,
        vector,
        ranges=ranges,
        use_keywords=use_keywords,
        calibration=calibration,
        english_model=english_model,
        filters=filters,
        depth=depth if use_keywords else max(limit, depth),
    )
    return [hit for _, hit in ranked([collected], limit, max_distance)]


@dataclass(frozen=True, slots=True)
class Collected:
    """What one file knows of a query: its candidates, and how rare the query's words are there.

    Attributes:
        nearest: chunk ids with their distance, nearest first.
        named: first chunks of the documents whose path is asked for.
        rows: of the statement `candidates`.
        readable: the share of the query that the file's model can read.
    """

    query: Query
    calibration: Calibration
    nearest: Sequence[tuple[int, float]] = ()
    words: WordLists | None = None  # None: meaning alone is asked for
    rows: Sequence[tuple[Any, ...]] = ()
    passages: LookedUp = field(default_factory=LookedUp)
    named: Container[int] = frozenset()
    titled: Container[int] = frozenset()
    readable: float = 1.0


def collect(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    *,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    use_keywords: bool = True,
    calibration: Calibration | None = None,
    english_model: bool = True,
    filters: Filters | None = None,
    depth: int = DEPTH,
) -> Collected:
    """All that is read of a file for a query; arguments as those of `search`."""
    proposed = propose(
        connection,
        query,
        vector,
        ranges,
        depth,
        use_keywords=use_keywords,
        calibration=calibration,
        filters=filters,
    )
    return examine(connection, query, vector, proposed, ranges, english_model=english_model)


def examine(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    proposed: Proposed,
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,),
    *,
    english_model: bool = True,
) -> Collected:
    """All that is read of the passages that a file's lists propose."""
    words = proposed.words
    if words is None:
        return Collected(query, proposed.calibration, proposed.nearest)
    only, without = proposed.filters
    ids = dict.fromkeys(
        [*words.literal, *proposed.best, *(chunk_id for chunk_id, _ in proposed.nearest)]
    )
    if query.must and only is not None and len(ids) < DEPTH:
        # What the operators let pass is found, even where no single word of it ranks.
        ids |= dict.fromkeys(sorted(only.difference(ids))[:DEPTH])
    named = _named(connection, query, ranges, only, without)
    ids |= dict.fromkeys(named)
    chunk_ids = list(ids)
    blob = None if vector is None else query_blob(vector)
    rows = connection.tuples("candidates", query=blob, chunk_ids=json.dumps(chunk_ids))
    document_of = {row[0]: row[1] for row in rows}
    promising = _promising(rows, words.chunks) | {document_of[one] for one in named}
    passages = look_up(connection, words.units, words.alternatives, document_of, promising)
    is_short = len(words.units) <= MOST_TITLE_WORDS
    readable = readable_share(query.text) if english_model else 1.0
    return Collected(
        query,
        proposed.calibration,
        proposed.nearest,
        words,
        rows,
        passages,
        named=frozenset(named),
        titled=rows_titled(connection, words.units, chunk_ids) if is_short else frozenset(),
        readable=0.0 if query.is_exact else readable,
    )


def ranked(
    collected: Sequence[Collected], limit: int, max_distance: float = FARTHEST
) -> list[tuple[int, Hit]]:
    """The best chunks of some files that are searched as one, each with its file's number.

    Args:
        max_distance: if below 2, leaves out rows whose distance is greater or not known.
    """
    evidence = [
        evidence_of(one, [other for other in collected if other is not one]) for one in collected
    ]
    # Of all files together, in which a document's id may come twice.
    usual = background([near for own in evidence for near in nearest_by_document(own).values()])
    hits = [
        (number, hit)
        for number, (one, own) in enumerate(zip(collected, evidence, strict=True))
        for hit in (
            _near_hits(one, limit, max_distance)
            if one.words is None
            else _hits(one, own, usual, limit, max_distance)
        )
    ]
    if len(collected) > 1:
        hits.sort(key=lambda pair: -pair[1].score)  # files in their order where scores are equal
    return hits[:limit]


def _near_hits(collected: Collected, limit: int, max_distance: float) -> list[Hit]:
    """What is near in meaning, where words do not count."""
    return [
        Hit(chunk_id, shown(collected.calibration.score(distance)), distance, vector_rank=rank)
        for rank, (chunk_id, distance) in enumerate(collected.nearest[:limit], 1)
        if distance <= max_distance
    ]


def _hits(
    collected: Collected,
    evidence: Sequence[Evidence],
    usual: float,
    limit: int,
    max_distance: float,
) -> list[Hit]:
    assert collected.words is not None
    keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(collected.words.chunks, 1)}
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(collected.nearest, 1)}
    near_enough = [
        one
        for one in evidence
        if max_distance >= FARTHEST or (one.distance is not None and one.distance <= max_distance)
    ]
    return [
        Hit(
            one.chunk_id,
            score,
            one.distance,
            keyword_ranks.get(one.chunk_id),
            vector_ranks.get(one.chunk_id),
            one,
        )
        for one, score in rank(near_enough, collected.readable, usual=usual, limit=limit)
    ]


def evidence_of(collected: Collected, others: Sequence[Collected]) -> list[Evidence]:
    """What is known of each candidate."""
    words, query = collected.words, collected.query
    if words is None:
        return []
    passages = coverage(collected.passages, [other.passages for other in others])
    of_documents = document_shares(collected.passages, [other.passages for other in others])
    standard = collected.calibration.standard
    asked = scripts_asked(query)
    asked_title = _plain(query.text)
    literal = set(words.literal) if len(split_words(query.text)) > 1 else set()
    of_document: dict[int, tuple[float, float | None, float, bool]] = {}
    found: list[Evidence] = []
    vectors: dict[int, bytes] = {}
    for (
        chunk_id,
        document_id,
        distance,
        document_distance,
        title,
        beginning,
        is_first,
        vector,
    ) in collected.rows:
        if (known := of_document.get(document_id)) is None:
            known = of_document[document_id] = (
                of_documents.get(document_id, 0.0),
                None if document_distance is None else standard(1 - document_distance),
                script_fit(asked, beginning),
                _plain(title) == asked_title,
            )
        document_words, document_cosine, script, is_title = known
        vectors[chunk_id] = vector
        score = words.chunks.get(chunk_id)
        one = Evidence(
            chunk_id,
            document_id,
            passages.share(chunk_id, score) if score else 0.0,
            document_words,
            passages.held.get(chunk_id, 0.0),
            passages.rarity,
            passages.telling,
            None if distance is None else standard(1 - distance),
            None if distance is None else document_cosine,
            script,
            chunk_id in collected.titled,
            chunk_id in literal,
            chunk_id in words.typed,
            is_title,
            bool(is_first) and chunk_id in collected.titled,
            chunk_id in collected.named,
            distance,
        )
        found.append(one)
    return fed_back(found, vectors, collected.readable, standard)


def _promising(rows: Sequence[tuple[Any, ...]], scores: Mapping[int, float]) -> set[int]:
    """The documents of the best candidates by words and of the nearest ones."""
    by_words = sorted(rows, key=lambda row: -scores.get(row[0], 0.0))
    near = [row for row in rows if row[2] is not None]
    by_meaning = sorted(near, key=lambda row: row[2] + row[3])
    return {row[1] for row in (*by_words[:PROMISING], *by_meaning[:PROMISING])}


def _named(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    only: set[int] | None,
    without: set[int] | None,
) -> list[int]:
    """The first passages of the documents whose path, or the end of it, is the query."""
    path = query.text.strip()
    if query.has_operators or len(path) > LONGEST_PATH or not {".", "/"} & {*path}:
        return []
    return [
        row[0]
        for first, last in ranges
        for row in connection.tuples(
            "first_chunks_named", key=page_key(path), first=first, last=last, limit=MOST_NAMED
        )
        if (only is None or row[0] in only) and row[0] not in (without or ())
    ]


def _plain(title: str) -> str:
    """A title as it is compared with a query."""
    return " ".join(title.split()).rstrip(".?!").casefold()
