"""Policies of the external and context families: documents of one collection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kb.errors import EmbeddingError, NoEmbeddings
from kb.model_in_use import ModelInUse
from kb.models.choose import how_to_get
from kb.models.embedder import Floats
from kb.search.candidates import Budget
from kb.search.evidence import Hit
from kb.search.files import SearchedFile, Snapshot
from kb.search.filters import Filters
from kb.search.query import Query, parse_query
from kb.search.run import HitsOfFile, Policy, Scope, SearchRequest, run
from kb.store.collections import all_collections
from kb.store.connection import Connection, Row
from kb.store.contents import collection_range, has_vectors
from kb.store.discoveries import chunks_of_discoveries, discoveries_of_chunks, find_discoveries
from kb.store.projects import external_documents
from kb.store.sessions import module_scores

MIN_DISCOVERY_SCORE = 0.12  # below it a discovery is unrelated to the question


class OfDocuments(Policy):
    """Rows are whole documents: every one that matches."""

    is_of_documents = True
    corrects = False
    tells_doubts = False
    folds = False

    parse: Callable[[str], Query] = staticmethod(parse_query)


class ExternalPolicy(OfDocuments):
    """A project's documentation, which is one collection."""

    budget = Budget(depth=2000)  # counts every document of some thousand pages
    max_hits = 4000

    def __init__(self, collection_id: int) -> None:
        self._collection_id = collection_id

    def scope(
        self, file: SearchedFile, snapshot: Snapshot, query: Query, request: SearchRequest
    ) -> Scope | None:
        has_documents = any(
            row["has_documents"] and row["collection_id"] == self._collection_id
            for row in all_collections(snapshot.connection)
        )
        if query.asks_for_nothing or not has_documents:
            return None
        return Scope([collection_range(self._collection_id)])

    def embed(
        self, model: ModelInUse, texts: Sequence[str], current: Row | None
    ) -> tuple[Sequence[Floats | None], str]:
        try:
            vectors = model.embed_queries(texts, current)
            if vectors is None:
                # Documents without vectors: the model failed when they were synced.
                model.embedder().embed_queries(texts)
                raise EmbeddingError(
                    "the documents have no embeddings yet; call activate_project again"
                )
        except EmbeddingError as error:
            name = model.model_name()
            raise EmbeddingError(
                f"Failed to generate embeddings with the model {name}: {error.message}. "
                f"If the model is missing, {how_to_get(name)}.",
                innerMessage=error.message,
                model=name,
            ) from error
        return vectors, ""

    def rows(
        self, _: SearchedFile, connection: Connection, request: SearchRequest, part: HitsOfFile
    ) -> Sequence[Row]:
        best = best_hits(part[1])
        rows = external_documents(connection, (hit.chunk_id for hit in best))
        return [{**rows[hit.chunk_id], "score": hit.score} for hit in best]


class DiscoveriesPolicy(OfDocuments):
    """Discoveries about a project, of one type and module ("" for any), filtered before ranking."""

    budget = Budget(depth=1000)
    max_hits = 2000

    def __init__(self, type_: str = "", module: str = "") -> None:
        self._type = type_
        self._module = module

    def scope(
        self, file: SearchedFile, snapshot: Snapshot, query: Query, request: SearchRequest
    ) -> Scope | None:
        """As `Policy.scope`. Raises NoEmbeddings if nothing is embedded yet."""
        connection = snapshot.connection
        within = collection_range(find_discoveries(connection) or 0)
        if not has_vectors(connection, within):
            raise NoEmbeddings(
                "No embeddings found. Run initial session to generate context.",
                fallback="Use grep_codebase for text search",
            )
        only = chunks_of_discoveries(connection, self._type, self._module)
        return None if query.asks_for_nothing or not only else Scope([within], only=only)

    def filters(
        self, snapshot: Snapshot, query: Query, scope: Scope, request: SearchRequest
    ) -> tuple[Query, Filters, str]:
        query, filters, notice = super().filters(snapshot, query, scope, request)
        assert scope.only is not None
        passing = scope.only if filters.only is None else scope.only & filters.only
        passing = passing - (filters.without or set())
        return query, filters._replace(only=passing, without=None), notice

    def embed(
        self, model: ModelInUse, texts: Sequence[str], current: Row | None
    ) -> tuple[Sequence[Floats | None], str]:
        try:
            return model.embed_queries(texts, current) or [None] * len(texts), ""
        except EmbeddingError as error:
            raise EmbeddingError(
                "Failed to generate query embedding", details=error.message
            ) from error

    def rows(
        self, _: SearchedFile, connection: Connection, request: SearchRequest, part: HitsOfFile
    ) -> Sequence[dict[str, Any]]:
        """Among equal scores, active modules come first; superseded discoveries come last."""
        best = best_hits(part[1])
        stored = discoveries_of_chunks(connection, (hit.chunk_id for hit in best))
        rows = [{**discovery_fields(stored[hit.chunk_id]), "score": hit.score} for hit in best]
        weights = module_scores(connection) if rows else {}
        ordered: list[dict[str, Any]] = []
        for _, tied in groupby(rows, key=lambda row: row["score"]):
            ordered += sorted(tied, key=lambda row: -weights.get(row.get("module", ""), 0.0))
        return sorted(ordered, key=lambda row: "superseded_by" in row)


def search_discoveries(
    file: SearchedFile, text: str, type_: str = "", module: str = "", limit: int = 5
) -> tuple[list[dict[str, Any]], int, str]:
    """The best discoveries of a file, their total number, and a notice. Raises NoEmbeddings if
    nothing is embedded yet, EmbeddingError if the query cannot be."""
    result = run([file], SearchRequest(text), DiscoveriesPolicy(type_, module))
    rows = [row for row in result.rows if row["score"] >= MIN_DISCOVERY_SCORE]
    rows = rows or result.rows[:1]  # the nearest one, however far it is
    return rows[:limit], len(result.rows), result.notice


def best_hits(hits: Iterable[Hit]) -> list[Hit]:
    """Each document's best passage, in the order of the hits."""
    best: dict[int | None, Hit] = {}
    for hit in hits:
        best.setdefault(hit.document_id, hit)
    return [*best.values()]


def discovery_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    metadata = json.loads(row["metadata"])
    shown = {"id": row["id"], "type": metadata["type"], "content": row["content"]}
    shown |= {key: metadata[key] for key in ("module", "session") if metadata.get(key)}
    if by := metadata.get("superseded_by"):
        shown["superseded_by"] = by
    return {**shown, "date": metadata["date"], "source": metadata.get("source", "discovery")}
