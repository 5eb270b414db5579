"""Collections, read and written. Whatever changes one is called in a write transaction.

To delete one with its documents is `kb.store.documents.delete_collection`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping
from itertools import count
from typing import Any

from kb.sources.address import kept, located
from kb.store.connection import Connection, Row
from kb.text.times import utc_now


def all_collections(connection: Connection) -> list[Row]:
    """Every collection, by name; `has_documents` instead of their number, which takes time."""

    def read() -> list[Row]:
        return [with_source(connection, row) for row in connection.rows("collections")]

    return [{**row} for row in connection.once("collections", read)]


def unstored_row(name: str, **fields: Any) -> Row:
    """A row of `collections` that is not stored yet. No collection has the id 0."""
    return {
        "collection_id": 0,
        "name": name,
        "kind": "documents",
        "source": "",
        "include": "[]",
        "exclude": "[]",
        "options": "{}",
        "description": None,
        "version": None,
        "project_id": None,
        "synced_at": None,
        **fields,
    }


def with_source(connection: Connection, row: Row, key: str = "source") -> Row:
    """A row whose source is where it is now, not relative to the project."""
    return {**row, key: located(row[key], connection.folder) if row[key] else row[key]}


def find_collection_id(connection: Connection, name: str) -> int | None:
    collection_id: int | None = connection.value("collection_id", name=name)
    return collection_id


def collection_name(connection: Connection, collection_id: int) -> str | None:
    name: str | None = connection.value("collection_name", collection_id=collection_id)
    return name


def collection_names_from(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Names of collections with this beginning, for a shell."""
    return connection.column("collection_names_from", prefix=prefix, limit=limit)


def file_mark(connection: Connection) -> str:
    """What all copies of a file have in common, and no other file has; "" where it holds nothing.

    Collections keep when they were made, and from what.
    """
    rows = connection.tuples("collection_marks")
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] if rows else ""


def shard_of(connection: Connection) -> list[int] | None:
    """Remainder and divisor of what a shard has (`kb.ingest.cut`); None where nothing was cut."""
    options = (json.loads(row["options"]) for row in all_collections(connection))
    return next((each["shard"] for each in options if "shard" in each), None)


def store_collection(connection: Connection, row: Row) -> int:
    """Make a collection, or change the one that has the row's id. Returns its row id."""
    fields = {**row, "source": kept(row["source"], connection.project), "created_at": utc_now()}
    if row["collection_id"]:
        connection.run("update_collection", **fields)
        return int(row["collection_id"])
    connection.run("insert_collection", **fields)
    return connection.last_id()


def insert_collection(
    connection: Connection, name: str, kind: str, options: Mapping[str, Any] | None = None
) -> int:
    """Make an empty collection that tool calls fill. Returns its row id."""
    written = json.dumps(options or {}, ensure_ascii=False)
    return store_collection(connection, unstored_row(name, kind=kind, options=written))


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or if it is taken the name with the lowest free number behind it."""
    names = (f"{name}-{number}" if number > 1 else name for number in count(1))
    return next(free for free in names if free not in taken)


def update_source(connection: Connection, collection_id: int, source: str) -> None:
    connection.run(
        "update_source", collection_id=collection_id, source=kept(source, connection.project)
    )


def update_options(connection: Connection, collection_id: int, options: str) -> None:
    connection.run("update_collection_options", collection_id=collection_id, options=options)


def finish_sync(
    connection: Connection,
    collection_id: int,
    version: str | None = None,
    description: str | None = None,
    source: str = "",
) -> None:
    """Note the end of a complete sync, and what the source's manifest says; None keeps that.

    Args:
        source: is written relative to the project where it lies in it and is still absolute.
    """
    connection.run(
        "finish_collection_sync",
        collection_id=collection_id,
        synced_at=utc_now(),
        version=version,
        description=description,
        source=source,
        shorter=kept(source, connection.project) if source else source,
    )


def delete_row(connection: Connection, collection_id: int) -> None:
    connection.run("delete_collection", collection_id=collection_id)


def find_index_row(connection: Connection, name: str) -> Row | None:
    return connection.row("index_by_name", name=name)


def index_names(connection: Connection) -> list[str]:
    return connection.column("index_names")
