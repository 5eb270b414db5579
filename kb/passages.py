"""Run searches and shape what they found into the rows that clients and people see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.database import Connection
from kb.errors import EmbeddingError
from kb.fuzzy import correct
from kb.knowledge_base import KnowledgeBase
from kb.query import Query, parse_query
from kb.ranking import readable_share
from kb.rerank import CANDIDATES, blend
from kb.results import SearchRow
from kb.search import DEPTH, ChunkRange, Hit, load_rows, search
from kb.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Found:
    """What several searches found: rows and the hits behind them, and what to tell the reader."""

    rows: list[list[SearchRow]]
    hits: list[list[Hit]]
    notice: str


def search_passages(
    kb: KnowledgeBase,
    asked: Sequence[tuple[str, Sequence[str]]],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool,
) -> Found:
    queries: list[Query] = [parse_query(text) for text, _ in asked]
    with kb.database.read() as connection:
        # Names first: a wrong one is told before the model is loaded.
        places = [kb.ranges(connection, names) for _, names in asked]
        corrected = [correct(connection, query) for query in queries]
        queries = [query for query, _ in corrected]
        texts = [query.words_to_embed for query in queries]
        vectors, notice = kb.try_embed_queries(connection, texts)
        notice = " ".join(filter(None, [*(text for _, text in corrected), notice]))
        if not hybrid and any(vector is None for vector in vectors):
            raise EmbeddingError(
                notice or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
            )
        english_model = kb.has_english_model(connection)
        rows: list[list[SearchRow]] = []
        all_hits: list[list[Hit]] = []
        for query, vector, (ranges, shown) in zip(queries, vectors, places, strict=True):
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
            if rerank and hits:
                hits, problem = _reranked(kb, connection, query, hits)
                hits = hits[:limit]
                notice = notice or problem
            rows.append(passage_rows(kb, connection, hits, shown))
            all_hits.append(hits)
    return Found(rows, all_hits, notice)


def _reranked(
    kb: KnowledgeBase, connection: Connection, query: Query, hits: list[Hit]
) -> tuple[list[Hit], str]:
    """The hits with the best ones in a finer order, and what kept them from it if anything."""
    from kb.chunk import embedding_text  # here: it brings the parser, which no server start needs

    try:
        reranker = kb.reranker(connection)
        if reranker is None:
            return hits, "The model gives no token vectors: rerank has no effect."
        head = hits[:CANDIDATES]
        texts = [
            embedding_text(row["title"], row["heading_path"], row["content"])
            for row in load_rows(connection, [hit.chunk_id for hit in head])
        ]
        scores = reranker.scores(query.words_to_embed, texts)
    except EmbeddingError as error:
        return hits, f"Not reranked: {error.message}."
    weight = reranker.weight
    if kb.has_english_model(connection):
        weight *= readable_share(query.text)
    order = blend([hit.fused_score for hit in head], scores, weight)
    return [head[position] for position in order] + hits[CANDIDATES:], ""


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
    kb: KnowledgeBase, connection: Connection, hits: Sequence[Hit], shown: dict[int, dict[str, str]]
) -> list[SearchRow]:
    """The rows of some hits, in their order; `shown` says how each collection is called."""
    calibration = kb.calibration(connection)
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
        }
        if row["heading"]:
            result["sectionHeading"] = row["heading"]
        if distance is not None and calibration is not None:
            result["relevanceScore"] = round(calibration.score(distance), 4)
            result["distance"] = round(distance, 4)
        rows.append(result)
    return rows
