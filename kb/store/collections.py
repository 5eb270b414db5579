"""Collections: all there are, made, and changed. What changes is called in a write transaction.

To delete one with its documents is `kb.store.documents.delete_collection`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from itertools import count
from typing import Any

from kb.sources.address import kept, located
from kb.store.connection import Connection, Row
from kb.text.times import utc_now


def all_collections(connection: Connection) -> list[Row]:
    """Every collection, by name; `has_documents` instead of their number, which takes time."""
    return [with_source(connection, row) for row in connection.rows("collections")]


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


def count_collections(connection: Connection) -> int:
    """How many collections there are, of every kind."""
    count: int = connection.value("count_collections")
    return count


def find_collection_id(connection: Connection, name: str) -> int | None:
    """A collection's row id by its name."""
    found: int | None = connection.value("collection_id", name=name)
    return found


def collection_name(connection: Connection, collection_id: int) -> str | None:
    """A collection's name; None when it is gone."""
    name: str | None = connection.value("collection_name", collection_id=collection_id)
    return name


def collection_names_from(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Names of collections that begin with some letters, for a shell."""
    rows = connection.tuples("collection_names_from", prefix=prefix, limit=limit)
    return [row[0] for row in rows]


def insert_collection(
    connection: Connection,
    name: str,
    kind: str,
    *,
    source: str = "",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    description: str | None = None,
    project_id: int | None = None,
) -> int:
    """Make an empty collection. Returns its row id."""
    connection.run(
        "insert_collection",
        name=name,
        kind=kind,
        source=kept(source, connection.project),
        include=json.dumps(list(include), ensure_ascii=False),
        exclude=json.dumps(list(exclude), ensure_ascii=False),
        options=json.dumps(options or {}, ensure_ascii=False),
        description=description,
        version=None,
        project_id=project_id,
        created_at=utc_now(),
    )
    return connection.last_id()


def insert_collection_like(connection: Connection, row: Row, name: str) -> int:
    """Make an empty collection with another one's settings. Returns its row id.

    Args:
        row: the other one's, of this file or another, or what is planned for one.
    """
    return insert_collection(
        connection,
        name,
        row["kind"],
        source=row["source"],
        include=json.loads(row["include"]),
        exclude=json.loads(row["exclude"]),
        options=json.loads(row["options"]),
        description=row["description"],
    )


def free_name(wanted: str, taken: Container[str]) -> str:
    """A collection's name that is not taken: the wanted one, or one with a number behind it."""
    names = (f"{wanted}-{number}" if number > 1 else wanted for number in count(1))
    return next(name for name in names if name not in taken)


def update_collection(
    connection: Connection,
    collection_id: int,
    *,
    kind: str,
    include: str,
    exclude: str,
    source: str | None = None,
    description: str | None = None,
) -> None:
    """Change a collection; globs as JSON. None keeps what there is."""
    connection.run(
        "update_collection",
        collection_id=collection_id,
        kind=kind,
        include=include,
        exclude=exclude,
        source=None if source is None else kept(source, connection.project),
        description=description,
    )


def update_source(connection: Connection, collection_id: int, source: str) -> None:
    """Say where the documents of a collection come from."""
    connection.run(
        "update_source", collection_id=collection_id, source=kept(source, connection.project)
    )


def keep_relative(connection: Connection, collection_id: int, source: str) -> None:
    """Write a source inside the project relative to it, where it is still written absolutely."""
    shorter = kept(source, connection.project)
    if shorter != source:
        connection.run(
            "shorten_source", collection_id=collection_id, source=source, shorter=shorter
        )


def update_options(connection: Connection, collection_id: int, options: str) -> None:
    """Change the settings of a collection, given as JSON."""
    connection.run("update_collection_options", collection_id=collection_id, options=options)


def finish_sync(
    connection: Connection, collection_id: int, version: str | None, description: str | None
) -> None:
    """Note the end of a complete sync, and what the source's manifest says; None keeps that."""
    connection.run(
        "finish_collection_sync",
        collection_id=collection_id,
        synced_at=utc_now(),
        version=version,
        description=description,
    )


def delete_row(connection: Connection, collection_id: int) -> None:
    """Delete a collection whose documents are gone already."""
    connection.run("delete_collection", collection_id=collection_id)
