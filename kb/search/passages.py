"""Run searches and shape what they found into the rows that clients and people see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse, calibration_of, has_english_model
from kb.models.rerank import CANDIDATES, blend
from kb.search.hybrid import DEPTH, Hit, load_rows, search
from kb.search.query import Query, parse_query
from kb.search.ranking import readable_share
from kb.search.typos import correct
from kb.store.database import Connection, Row
from kb.store.ids import ChunkRange
from kb.store.names import Names
from kb.store.places import place_fields
from kb.store.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
) -> Found:
    """The best passages for each query and the collections to look in ([]: all of them).

    Raises:
        CollectionNotFound: a name that does not exist.
        EmbeddingError: there are no vectors to be had, and `hybrid` is off.
        ModelMismatchError: the file's vectors come from another model than the one asked for.
    """
    with model.database.read() as connection:
        for _, collections in asked:
            names.ranges(connection, collections)  # a wrong name is told before the model is loaded
        corrected = [correct(connection, parse_query(text)) for text, _ in asked]
    queries: list[Query] = [query for query, _ in corrected]
    vectors, notice = model.try_embed_queries([query.words_to_embed for query in queries])
    notice = " ".join(filter(None, [*(text for _, text in corrected), notice]))
    if not hybrid and any(vector is None for vector in vectors):
        raise EmbeddingError(
            notice or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
        )
    found = Found([], [], notice)
    texts: list[list[str]] = []
    with model.database.read() as connection:
        english_model = has_english_model(connection)
        for query, vector, (_, collections) in zip(queries, vectors, asked, strict=True):
            ranges, shown = names.ranges(connection, collections)
            hits = search(
                connection,
                query,
                vector,
                ranges=ranges,
                limit=max(limit, CANDIDATES) if rerank else limit,
                max_distance=max_distance,
                use_keywords=hybrid,
                english_model=english_model,
            )
            found.hits.append(hits)
            found.rows.append(passage_rows(connection, hits, shown))
            texts.append(_embedded_texts(connection, hits[:CANDIDATES]) if rerank else [])
    return _reranked(model, queries, found, texts, english_model, limit) if rerank else found


def _reranked(
    model: ModelInUse,
    queries: Sequence[Query],
    found: Found,
    texts: Sequence[Sequence[str]],
    english_model: bool,
    limit: int,
) -> Found:
    """The best rows of each query in a finer order, and what kept them from it if anything.

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
                old = [hit.fused_score for hit in hits[: len(passages)]]
                order[: len(passages)] = blend(old, scores, weight)
    except EmbeddingError as error:
        problem = f"Not reranked: {error.message}."
    return Found(
        [[rows[i] for i in order[:limit]] for order, rows in zip(orders, found.rows, strict=True)],
        [[hits[i] for i in order[:limit]] for order, hits in zip(orders, found.hits, strict=True)],
        found.notice or problem,
    )


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
) -> list[Hit]:
    """The documents of one range that come nearest, each by its nearest chunk, nearest first."""
    depth = max(DEPTH, limit * 10)
    while True:
        nearest = nearest_chunks(connection, vector, [place], depth, without=without)
        ids = json.dumps([chunk_id for chunk_id, _ in nearest])
        document_of = dict(connection.tuples("chunk_documents", chunk_ids=ids))
        best: dict[str, Hit] = {}
        for chunk_id, distance in nearest:
            best.setdefault(document_of[chunk_id], Hit(chunk_id, 0.0, None, None, distance))
        # A long document may hold all of the nearest chunks: then look further.
        if len(best) >= limit or len(nearest) < depth:
            return list(best.values())[:limit]
        depth *= 4


def passage_rows(
    connection: Connection, hits: Sequence[Hit], shown: dict[int, dict[str, str]]
) -> list[Row]:
    """The rows of some hits, in their order; `shown` says how each collection is called."""
    calibration = calibration_of(connection)
    rows: list[Any] = []
    by_id = {hit.chunk_id: hit for hit in hits}
    for row in load_rows(connection, list(by_id)):
        distance = by_id[row["chunk_id"]].distance
        result: Any = {
            **shown[row["collection_id"]],
            "documentId": row["document"],
            "documentTitle": row["title"],
            "content": row["content"],
            "chunkIndex": row["position"],
            "totalChunks": row["chunk_count"],
            "startLine": row["start_line"],
            "endLine": row["end_line"],
            **place_fields(row),
        }
        if row["heading"]:
            result["sectionHeading"] = row["heading"]
        if distance is not None and calibration is not None:
            result["relevanceScore"] = round(calibration.score(distance), 4)
            result["distance"] = round(distance, 4)
        rows.append(result)
    return rows
