"""Make, change and delete collections. Call inside a write transaction."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from itertools import count
from typing import Any

from kb.store.database import Connection, utc_now
from kb.store.documents import delete_document
from kb.store.embeddings import delete_unused_vectors


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
        source=source,
        include=json.dumps(list(include), ensure_ascii=False),
        exclude=json.dumps(list(exclude), ensure_ascii=False),
        options=json.dumps(options or {}, ensure_ascii=False),
        description=description,
        version=None,
        project_id=project_id,
        created_at=utc_now(),
    )
    return connection.last_id()


def free_name(wanted: str, taken: Container[str]) -> str:
    """A collection's name that is not taken: the wanted one, or one with a number behind it."""
    names = (f"{wanted}-{number}" if number > 1 else wanted for number in count(1))
    return next(name for name in names if name not in taken)


def count_documents(connection: Connection, collection_id: int) -> int:
    """How many documents a collection holds."""
    count: int = connection.value("count_documents", collection_id=collection_id)
    return count


def delete_collection(connection: Connection, collection_id: int) -> None:
    """Delete a collection with all its documents."""
    for row in connection.rows("stored_files", collection_id=collection_id):
        delete_document(connection, row["document_id"])
    connection.run("delete_collection", collection_id=collection_id)
    delete_unused_vectors(connection)
