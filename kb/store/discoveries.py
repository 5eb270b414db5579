"""Discoveries as they are stored: small documents of one collection, told apart by metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kb.store.collections import all_collections, free_name, insert_collection
from kb.store.connection import Connection, Row

KIND = "discoveries"


def find_discoveries(connection: Connection) -> int | None:
    """The collection of the discoveries; None while there is none."""
    found: int | None = connection.value("discoveries_collection")
    return found


def make_discoveries(connection: Connection) -> int:
    """The collection of the discoveries, made when there is none."""
    found = find_discoveries(connection)
    if found is None:
        taken = {row["name"] for row in all_collections(connection)}
        return insert_collection(connection, free_name(KIND, taken), KIND)
    return found


def stored_discoveries(connection: Connection) -> list[Row]:
    """Every discovery with its metadata as JSON, by module, type and date."""
    return connection.rows("all_discoveries", collection_id=find_discoveries(connection))


def chunks_of_discoveries(connection: Connection, type_: str, module: str) -> set[int]:
    """The chunks of the discoveries of a type and module; "" stands for any."""
    rows = connection.tuples(
        "discovery_chunks", collection_id=find_discoveries(connection), type=type_, module=module
    )
    return {row[0] for row in rows}


def discoveries_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, Row]:
    """What is shown of the discovery that each of these chunks belongs to."""
    rows = connection.rows("discoveries_of_chunks", chunk_ids=json.dumps(list(chunk_ids)))
    return {row["chunk_id"]: row for row in rows}
