"""Discoveries as they are stored: small documents of one collection, told apart by metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kb.store.collections import all_collections, free_name, insert_collection
from kb.store.connection import Connection, Row

KIND = "discoveries"


def find_discoveries(connection: Connection) -> int | None:
    """The collection of discoveries, if there is one."""
    ids = (row["collection_id"] for row in all_collections(connection) if row["kind"] == KIND)
    return min(ids, default=None)


def make_discoveries(connection: Connection) -> int:
    """The collection of discoveries, made if there is none."""
    if (collection_id := find_discoveries(connection)) is not None:
        return collection_id
    taken = {row["name"] for row in all_collections(connection)}
    return insert_collection(connection, free_name(KIND, taken), KIND)


def stored_discoveries(connection: Connection) -> list[Row]:
    """Every discovery with its metadata as JSON, by module, type and date."""
    return connection.rows("all_discoveries", collection_id=find_discoveries(connection))


def set_metadata(connection: Connection, document_id: int, metadata: Mapping[str, Any]) -> None:
    """Replace a discovery's metadata; its text stays."""
    written = json.dumps(metadata, ensure_ascii=False)
    connection.run("set_discovery_metadata", document_id=document_id, metadata=written)


def chunks_of_discoveries(connection: Connection, type_: str, module: str) -> set[int]:
    """The chunks of the discoveries of a type and module; "" stands for any."""
    collection_id = find_discoveries(connection)
    return set(
        connection.column(
            "discovery_chunks", collection_id=collection_id, type=type_, module=module
        )
    )


def discoveries_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, Row]:
    """What is shown of the discovery of each chunk."""
    rows = connection.rows("discoveries_of_chunks", chunk_ids=[*chunk_ids])
    return {row["chunk_id"]: row for row in rows}
