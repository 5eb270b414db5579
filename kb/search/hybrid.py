"""Keyword list + vector list -> evidence -> scored chunks, best first."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.model_in_use import MadeBy
from kb.models.embedder import Calibration
from kb.search.candidate_rows import Candidates, promising_together, read_candidates
from kb.search.coverage import Everywhere, coverage, document_shares, everywhere
from kb.search.feedback import fed_back
from kb.search.keywords import WordLists
from kb.search.lookup import LookedUp, look_up, rows_titled
from kb.search.operators import Filters
from kb.search.proposed import DEPTH, propose
from kb.search.query import Query, scripts_asked
from kb.search.ranking import (
    Evidence,
    Expected,
    expected,
    rank,
    readable_share,
    script_fit,
    shown,
)
from kb.store.connection import Connection
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.text.terms import words as split_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_TITLE_WORDS = 3  # of a query that may be a title
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


class Collected(NamedTuple):
    """What one file knows of a query: its candidates, and how rare the query's words are there.

    Attributes:
        model: what made its vectors.
        nearest: chunk ids with their distance, nearest first.
        named: first chunks of the documents whose path is asked for.
        rows: of the statement `candidates`.
        readable: the share of the query that the file's model can read.
    """

    query: Query
    calibration: Calibration
    model: tuple[str, str]
    nearest: Sequence[tuple[int, float]] = ()
    words: WordLists | None = None  # None: meaning alone is asked for
    rows: Sequence[tuple[Any, ...]] = ()
    passages: LookedUp = LookedUp()
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
    candidates = read_candidates(connection, query, vector, proposed, ranges)
    [promising] = promising_together([candidates])
    made = MadeBy(calibration=proposed.calibration, is_english=english_model)
    return examine(connection, query, candidates, promising, made)


def examine(
    connection: Connection, query: Query, candidates: Candidates, promising: set[int], made: MadeBy
) -> Collected:
    """All that is read of a file's candidates.

    Args:
        promising: the documents that are looked at as a whole.
    """
    proposed, words = candidates.proposed, candidates.proposed.words
    if words is None:
        return Collected(query, proposed.calibration, made.model, proposed.nearest)
    document_of = {row[0]: row[1] for row in candidates.rows}
    promising = promising | {document_of[one] for one in candidates.named}
    passages = look_up(connection, words.units, words.alternatives, document_of, promising)
    is_short = len(words.units) <= MOST_TITLE_WORDS
    readable = readable_share(query.words_to_embed) if made.is_english else 1.0
    return Collected(
        query,
        proposed.calibration,
        made.model,
        proposed.nearest,
        words,
        candidates.rows,
        passages,
        named=frozenset(candidates.named),
        titled=rows_titled(connection, words.units, document_of) if is_short else frozenset(),
        readable=0.0 if query.is_exact else readable,
    )


def ranked(
    collected: Sequence[Collected], limit: int, max_distance: float = FARTHEST
) -> list[tuple[int, Hit]]:
    """The best chunks of some files that are searched as one, each with its file's number.

    Args:
        max_distance: if below 2, leaves out rows whose distance is greater or not known.
    """
    evidence = evidence_of(collected)
    usual = expected(evidence)
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
    usual: Expected,
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


def evidence_of(collected: Sequence[Collected]) -> list[list[Evidence]]:
    """What is known of each candidate of some files, by file."""
    files = everywhere([one.passages for one in collected])
    found = [_evidence(one, files) for one in collected]
    # Vectors of one model are near to each other whichever files they lie in.
    alike: dict[object, list[int]] = {}
    for number, one in enumerate(collected):
        alike.setdefault((one.model, one.calibration, one.readable), []).append(number)
    for numbers in alike.values():
        first = collected[numbers[0]]
        fed = iter(
            fed_back(
                [candidate for number in numbers for candidate in found[number]],
                [row[-1] for number in numbers for row in collected[number].rows],
                first.readable,
                first.calibration.standard,
            )
        )
        for number in numbers:
            found[number] = list(islice(fed, len(found[number])))
    return found


def _evidence(collected: Collected, files: Everywhere) -> list[Evidence]:
    """What is known of each row's passage, but for what is near to the best."""
    words, query = collected.words, collected.query
    if words is None:
        return []
    passages = coverage(collected.passages, files)
    of_documents = document_shares(collected.passages, files)
    standard = collected.calibration.standard
    asked = scripts_asked(query)
    asked_title = _plain(query.text)
    literal = set(words.literal) if len(split_words(query.text)) > 1 else set()
    of_document: dict[int, tuple[float, float | None, float, bool]] = {}
    found: list[Evidence] = []
    for (
        chunk_id,
        document_id,
        distance,
        document_distance,
        title,
        beginning,
        is_first,
        _,
    ) in collected.rows:
        if (known := of_document.get(document_id)) is None:
            known = of_document[document_id] = (
                of_documents.get(document_id, 0.0),
                None if document_distance is None else standard(1 - document_distance),
                script_fit(asked, beginning),
                _plain(title) == asked_title,
            )
        document_words, document_cosine, script, is_title = known
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
    return found


def _plain(title: str) -> str:
    """A title as it is compared with a query."""
    return " ".join(title.split()).rstrip(".?!").casefold()
