"""The best passages of each query in a finer order, by every word of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse, has_english_model
from kb.models.rerank import blend
from kb.search.files import SearchedFile, Together
from kb.search.hybrid import Hit
from kb.search.query import Query
from kb.search.ranking import readable_share
from kb.search.rows import load_rows
from kb.store.connection import Connection, Row


def finer_orders(
    model: ModelInUse,
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],
    texts: Sequence[Sequence[str]],
) -> tuple[list[list[int]], str]:
    """For each query the places of its hits, best first, and what kept them as they were, if so.

    Args:
        texts: of each query the texts of its best hits; the others stay behind them.
    """
    orders = [list(range(len(own))) for own in hits]
    with model.database.read() as connection:
        english_model = has_english_model(connection)
    try:
        reranker = model.reranker()
        if reranker is None:
            return orders, "The model gives no token vectors: rerank has no effect."
        for order, query, own, passages in zip(orders, queries, hits, texts, strict=True):
            scores = reranker.scores(query.words_to_embed, passages) if passages else []
            weight = reranker.weight * (
                readable_share(query.words_to_embed) if english_model else 1.0
            )
            old = [hit.score for hit in own[: len(passages)]]
            order[: len(passages)] = blend(old, scores, weight)
    except EmbeddingError as error:
        return orders, f"Not reranked: {error.message}."
    return orders, ""


def _embedded_texts(connection: Connection, hits: Sequence[Hit]) -> list[str]:
    """The texts of some hits as the model embedded them."""
    # Here: it brings the parser, which no server start needs.
    from kb.formats.chunk import embedding_text

    return [
        embedding_text(row["title"], row["heading_path"], row["content"])
        for row in load_rows(connection, [hit.chunk_id for hit in hits])
    ]


def texts_of(together: Together, listed: Sequence[tuple[SearchedFile, Hit, Row]]) -> list[str]:
    """The texts of some hits as the model embedded them."""

    def own_texts(file: SearchedFile, connection: Connection) -> Iterator[str]:
        own = [hit for origin, hit, _ in listed if origin is file]
        return iter(_embedded_texts(connection, own))

    texts = together.each(own_texts)
    return [next(texts[file]) if file in texts else "" for file, _, _ in listed]
