"""What is read of the passages of an answer: rows to show, copies to fold, texts for reranking.

Of copies and translations of a document among the hits the best stays and names the others. Copies
have equal bytes (in all collections, unless some are asked for) or in one collection a name that a
sync program gives a second version (`a (conflicted copy).md`,
`a.sync-conflict-20260101-120000-ABC.md`). Translations have the language in their path: `a.md` and
`a.de.md`, or an `a.md` in each of the folders `en` and `ja`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse
from kb.models.rerank import blend
from kb.search.candidates import Candidates
from kb.search.evidence import Hit
from kb.search.files import SearchedFile, Snapshot
from kb.search.query import Query
from kb.search.ranking import readable_share
from kb.store.collections import Labels
from kb.store.connection import Connection, Row
from kb.store.contents import Origins, address_fields, paths_of_chunks

T = TypeVar("T")


def load_rows(connection: Connection, chunk_ids: Sequence[int]) -> list[Row]:
    """The row of each chunk, in the order asked for."""
    rows = connection.rows("hit_rows", chunk_ids=json.dumps([*chunk_ids]))
    by_id = {row["chunk_id"]: row for row in rows}
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def load_documents(connection: Connection, chunk_ids: Sequence[int]) -> list[str]:
    """The path of each chunk's document, in the order asked for."""
    by_id = paths_of_chunks(connection, chunk_ids)
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def passage_rows(
    connection: Connection, hits: Sequence[Hit], called: Labels, *, dates: bool = False
) -> list[Row]:
    """The rows of some hits, in order, with `dates` if asked for."""
    rows: list[Any] = []
    by_id = {hit.chunk_id: hit for hit in hits}
    loaded = load_rows(connection, [*by_id])
    converted = [row["document_id"] for row in loaded if row["has_origins"]]
    origins = Origins(connection, converted) if converted else None
    for row in loaded:
        hit, lines = by_id[row["chunk_id"]], (row["start_line"], row["end_line"])
        shown: Any = {
            **called[row["collection_id"]],
            "documentId": row["document"],
            "documentTitle": row["title"],
            **(address_fields(row, row["document"]) if row["own_url"] or row["base_url"] else {}),
            "content": row["content"],
            "chunkIndex": row["position"],
            "totalChunks": row["chunk_count"],
            "startLine": lines[0],
            "endLine": lines[1],
            **(origins.fields(row["document_id"], *lines) if origins else {}),
            "relevanceScore": hit.score,
        }
        if dates and row["date"]:
            shown["date"] = row["date"]
        if row["heading"]:
            shown["sectionHeading"] = row["heading"]
        if hit.distance is not None:
            shown["distance"] = round(hit.distance, 4)
        rows.append(shown)
    return rows


def embedded_texts(_: SearchedFile, connection: Connection, hits: Sequence[Hit]) -> list[str]:
    """The texts of some hits as the model embedded them, a step."""
    from kb.formats.chunk import embedding_text  # here: it brings the parser

    rows = load_rows(connection, [hit.chunk_id for hit in hits])
    return [embedding_text(row["title"], row["heading_path"], row["content"]) for row in rows]


def finer_order(
    model: ModelInUse, query: Query, hits: Sequence[Hit], texts: Sequence[str]
) -> tuple[list[int], str]:
    """The positions of a query's hits, best first by all their words, and a notice; `texts` are
    those of the best hits, and the others stay behind them."""
    order = list(range(len(hits)))
    with model.database.read() as connection:
        is_english = Snapshot(connection).model.is_english
    try:
        if (reranker := model.reranker()) is None:
            return order, "The model gives no token vectors: rerank has no effect."
        scores = reranker.scores(query.words_to_embed, texts) if texts else []
    except EmbeddingError as error:
        return order, f"Not reranked: {error.message}."
    weight = reranker.weight * (readable_share(query.words_to_embed) if is_english else 1.0)
    order[: len(texts)] = blend([hit.score for hit in hits[: len(texts)]], scores, weight)
    return order, ""


MAX_FOLDED = 20  # hits checked beyond those shown
_LANGUAGE = (
    "(?:ar|az|bg|bn|cs|da|de|el|en|es|et|fa|fi|fr|he|hi|hr|hu|id|it|ja|ko|lt|lv|ms|nb|nl|no|pl|pt|ro|ru"
    "|sk|sl|sr|sv|ta|th|tr|uk|ur|uz|vi|yo|zh)(?:[-_][A-Za-z]{2,4})?"
)
_TRANSLATION = re.compile(rf"(?<![^/]){_LANGUAGE}/|[._]{_LANGUAGE}(?=\.\w+$)")
_CONFLICT = re.compile(
    r" ?\([^()/]*conflicted copy[^()/]*\)|[ ._-]conflicted copy[^/.]*|\.sync-conflict-[\w-]+"
    r"|[._]conflict[-_]\d[\w-]*",
    re.IGNORECASE,
)


def fold(
    hits: Sequence[tuple[T, Hit]], answers: Mapping[T, tuple[Candidates, Labels]], *, across: bool
) -> dict[tuple[T, int], list[str]]:
    """For each document of some hits, best first, what it stands for: ids, of another collection
    COLLECTION/id. Only equal bytes are folded `across` collections."""
    files = {file for file, _ in hits}
    documents = {file: {row[1]: row[7:9] for row in answers[file][0].rows} for file in files}
    shown: dict[tuple[str, object], tuple[T, int]] = {}
    others: dict[tuple[T, int], list[str]] = {}
    for key in dict.fromkeys(
        (f, hit.document_id) for f, hit in hits if hit.document_id is not None
    ):
        file, document_id = key
        path, content_hash = documents[file][document_id]
        collection = answers[file][1][document_id >> 32]["collection"]
        keys: list[tuple[str, object]] = [(collection, key_of(path))]
        if content_hash:  # else it is to be read anew
            keys.append(("" if across else collection, content_hash))
        first = next((shown[copy] for copy in keys if copy in shown), key)
        for copy in keys:
            shown.setdefault(copy, first)
        if first == key:
            others[key] = []
            continue
        is_near = collection == answers[first[0]][1][first[1] >> 32]["collection"]
        others[first].append(path if is_near else f"{collection}/{path}")
    return others


def key_of(path: str) -> str:
    """What the paths of copies and translations of a document have in common."""
    return _TRANSLATION.sub("", _CONFLICT.sub("", path))


def copies(connection: Connection) -> list[tuple[str, ...]]:
    """Groups of documents that are copies, by bytes or name, each as `collection/path`."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, path, content_hash in connection.tuples("documents_by_hash"):
        groups.setdefault((name, content_hash), []).append(f"{name}/{path}")
        groups.setdefault((name, _CONFLICT.sub("", path), "by name"), []).append(f"{name}/{path}")
    return [*dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 1)]
