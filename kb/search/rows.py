"""What is shown of passages that were found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kb.search.hybrid import Hit
from kb.store.addresses import address_fields
from kb.store.chunks import paths_of_chunks
from kb.store.connection import Connection, Row
from kb.store.places import places_of


def load_rows(connection: Connection, chunk_ids: Sequence[int]) -> list[Row]:
    """What is shown of each chunk, in the order asked for."""
    rows = connection.rows("hit_rows", chunk_ids=json.dumps(list(chunk_ids)))
    by_id = {row["chunk_id"]: row for row in rows}
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def load_documents(connection: Connection, chunk_ids: Sequence[int]) -> list[str]:
    """The path of each chunk's document, in the order asked for."""
    by_id = paths_of_chunks(connection, chunk_ids)
    return [by_id[chunk_id] for chunk_id in chunk_ids if chunk_id in by_id]


def passage_rows(
    connection: Connection, hits: Sequence[Hit], called: dict[int, dict[str, str]]
) -> list[Row]:
    """The rows of some hits, in their order; `called` says how each collection is called."""
    rows: list[Any] = []
    by_id = {hit.chunk_id: hit for hit in hits}
    loaded = load_rows(connection, list(by_id))
    places = places_of(connection, [row["document_id"] for row in loaded])
    for row in loaded:
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
            **places.fields(row["document_id"], row["start_line"], row["end_line"]),
            "relevanceScore": hit.score,
        }
        if row["heading"]:
            result["sectionHeading"] = row["heading"]
        if hit.distance is not None:
            result["distance"] = round(hit.distance, 4)
        rows.append(result)
    return rows
