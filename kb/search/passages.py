"""Run searches and shape what they found into the rows that clients and people see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse, calibration_of, has_english_model
from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.models.rerank import CANDIDATES, blend
from kb.search.hybrid import DEPTH, FARTHEST, Hit, load_rows, search
from kb.search.operators import enforced
from kb.search.paths import within_paths
from kb.search.query import Query, parse_query
from kb.search.ranking import readable_share, shown
from kb.search.typos import correct
from kb.store.addresses import address_fields
from kb.store.chunks import count_chunks, count_waiting, paths_of_chunks
from kb.store.database import Connection, Database, Row
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.names import Names
from kb.store.places import place_fields
from kb.store.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


WORDS_ALONE = "There are no embeddings yet: judged by words alone until `kb sync` has made some."


@dataclass(frozen=True, slots=True)
class Found:
    """What several searches found: rows and the hits behind them, and what to tell the reader."""

    rows: list[list[Row]]
    hits: list[list[Hit]]
    notice: str


def search_passages(
    model: ModelInUse,
    names: Names,
    asked: Sequence[tuple[str, Sequence[str]]],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool,
    *,
    distances: bool = True,
    paths: Sequence[str] = (),
) -> Found:
    """The best passages for each query and the collections to look in ([]: all of them).

    Args:
        distances: False where nobody sees them: what is asked exactly then needs no model.
        paths: globs of which one has to fit a document's id, or its id behind its collection's.

    Raises:
        CollectionNotFound: a name that does not exist.
        EmbeddingError: there are no vectors to be had, and `hybrid` is off.
        UsageError: a glob that can match nothing.
        ModelMismatchError: the file's vectors come from another model than the one asked for.
    """
    with model.database.read() as connection:
        for _, collections in asked:
            names.ranges(connection, collections)  # a wrong name is told before the model is loaded
        corrected = [correct(connection, parse_query(text, tags=True)) for text, _ in asked]
        queries: list[Query] = [query for query, _ in corrected]
        by_words = [
            hybrid
            and (
                query.asks_for_nothing
                or (
                    not (distances or rerank or max_distance < FARTHEST)
                    and query.is_exact
                    and not enforced(connection, query, names.ranges(connection, collections)[0])[2]
                )
            )
            for query, (_, collections) in zip(queries, asked, strict=True)
        ]
    vectors, problem = _vectors_of(model, queries, by_words)
    said = [text for query, text in corrected for text in (query.notice, text)]
    notice = " ".join(filter(None, [*dict.fromkeys(said), problem]))
    if not hybrid and any(vector is None for vector in vectors):
        raise EmbeddingError(
            notice or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
        )
    found = Found([], [], notice)
    texts: list[list[str]] = []
    with model.database.read() as connection:
        english_model = has_english_model(connection)
        for query, vector, (_, collections) in zip(queries, vectors, asked, strict=True):
            ranges, called = names.ranges(connection, collections)
            query, filters, loosened = enforced(connection, query, ranges)
            if paths:
                filters, unmatched = within_paths(connection, filters, ranges, called, paths)
                loosened = f"{loosened} {unmatched}".strip()
            if loosened and loosened not in found.notice:
                found = replace(found, notice=f"{found.notice} {loosened}".strip())
            hits = search(
                connection,
                query,
                vector,
                ranges=ranges,
                limit=max(limit, CANDIDATES) if rerank else limit,
                max_distance=max_distance,
                use_keywords=hybrid,
                calibration=calibration_of(connection),
                english_model=english_model,
                filters=filters,
            )
            found.hits.append(hits)
            found.rows.append(passage_rows(connection, hits, called))
            texts.append(_embedded_texts(connection, hits[:CANDIDATES]) if rerank else [])
    missing = any(
        vector is None and not exact for vector, exact in zip(vectors, by_words, strict=True)
    )
    if any(found.rows) and not problem:
        by_meaning = [one for one, exact in zip(asked, by_words, strict=True) if not exact]
        waiting = WORDS_ALONE if missing else _some_wait(model.database, names, by_meaning)
        found = replace(found, notice=f"{found.notice} {waiting}".strip())
    return _reranked(model, queries, found, texts, english_model, limit) if rerank else found


def _vectors_of(
    model: ModelInUse, queries: Sequence[Query], by_words: Sequence[bool]
) -> tuple[list[NDArray[np.float32] | None], str]:
    """The vector of each query that is not judged by its words alone, and what went wrong."""
    if all(by_words):
        return [None] * len(queries), ""
    texts = [
        query.words_to_embed for query, alone in zip(queries, by_words, strict=True) if not alone
    ]
    vectors, problem = model.try_embed_queries(texts)
    left = iter(vectors)
    return [None if alone else next(left) for alone in by_words], problem


def _some_wait(database: Database, names: Names, asked: Sequence[tuple[str, Sequence[str]]]) -> str:
    """What to say while some of the passages that were searched have no vector yet."""
    with database.read() as connection:
        wanted = (names.ranges(connection, collections)[0] for _, collections in asked)
        ranges = {place for places in wanted for place in places}
        if WHOLE_FILE in ranges:
            ranges = {WHOLE_FILE}
        waiting = sum(count_waiting(connection, place) for place in ranges)
        if not waiting:
            return ""
        total = sum(count_chunks(connection, place) for place in ranges)
    return (
        f"{total - waiting} of {total} passages have vectors yet: the others are found by words "
        "alone until `kb sync` has made theirs."
    )


def _reranked(
    model: ModelInUse,
    queries: Sequence[Query],
    found: Found,
    texts: Sequence[Sequence[str]],
    english_model: bool,
    limit: int,
) -> Found:
    """The best rows of each query in a finer order, and what kept them from it if anything.

    Reranking says which rows are the best, the evidence how good the best are: the first row gets
    the greatest of their scores, and so on.

    Args:
        texts: of each query the texts of its best hits.
    """
    problem = ""
    orders = [list(range(len(hits))) for hits in found.hits]
    try:
        reranker = model.reranker()
        if reranker is None:
            problem = "The model gives no token vectors: rerank has no effect."
        else:
            for order, query, hits, passages in zip(
                orders, queries, found.hits, texts, strict=True
            ):
                scores = reranker.scores(query.words_to_embed, passages) if passages else []
                weight = reranker.weight * (readable_share(query.text) if english_model else 1.0)
                old = [hit.score for hit in hits[: len(passages)]]
                order[: len(passages)] = blend(old, scores, weight)
    except EmbeddingError as error:
        problem = f"Not reranked: {error.message}."
    reranked = Found([], [], found.notice or problem)
    for order, rows, hits in zip(orders, found.rows, found.hits, strict=True):
        scores_in_order = [hit.score for hit in hits]  # they fall
        places = list(zip(order, scores_in_order, strict=True))[:limit]
        reranked.hits.append([replace(hits[i], score=score) for i, score in places])
        reranked.rows.append([{**rows[i], "relevanceScore": score} for i, score in places])
    return reranked


def _embedded_texts(connection: Connection, hits: Sequence[Hit]) -> list[str]:
    """The texts of some hits as the model embedded them."""
    from kb.formats.chunk import (
        embedding_text,
    )  # here: it brings the parser, which no server start needs

    return [
        embedding_text(row["title"], row["heading_path"], row["content"])
        for row in load_rows(connection, [hit.chunk_id for hit in hits])
    ]


def nearest_documents(
    connection: Connection,
    vector: NDArray[np.float32],
    place: ChunkRange,
    limit: int,
    *,
    without: Sequence[int],
    calibration: Calibration = BUNDLED_CALIBRATION,
) -> list[Hit]:
    """The documents of one range that come nearest, each by its nearest chunk, nearest first."""
    depth = max(DEPTH, limit * 10)
    while True:
        nearest = nearest_chunks(connection, vector, [place], depth, without=without)
        document_of = paths_of_chunks(connection, (chunk_id for chunk_id, _ in nearest))
        best: dict[str, Hit] = {}
        for chunk_id, distance in nearest:
            score = shown(calibration.score(distance))
            best.setdefault(document_of[chunk_id], Hit(chunk_id, score, distance))
        # A long document may hold all of the nearest chunks: then look further.
        if len(best) >= limit or len(nearest) < depth:
            return list(best.values())[:limit]
        depth *= 4


def passage_rows(
    connection: Connection, hits: Sequence[Hit], called: dict[int, dict[str, str]]
) -> list[Row]:
    """The rows of some hits, in their order; `called` says how each collection is called."""
    rows: list[Any] = []
    by_id = {hit.chunk_id: hit for hit in hits}
    for row in load_rows(connection, list(by_id)):
        hit = by_id[row["chunk_id"]]
        result: Any = {
            **called[row["collection_id"]],
            "documentId": row["document"],
            "documentTitle": row["title"],
            **address_fields(row, row["document"]),
            "content": row["content"],
            "chunkIndex": row["position"],
            "totalChunks": row["chunk_count"],
            "startLine": row["start_line"],
            "endLine": row["end_line"],
            **place_fields(row),
            "relevanceScore": hit.score,
        }
        if row["heading"]:
            result["sectionHeading"] = row["heading"]
        if hit.distance is not None:
            result["distance"] = round(hit.distance, 4)
        rows.append(result)
    return rows
