"""What the file holds: its documents by path and by id, their texts and headings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from kb.store.collections import with_source
from kb.store.connection import Connection, Row
from kb.store.ids import ChunkRange


def count_documents(connection: Connection, collection_id: int) -> int:
    """How many documents a collection holds."""
    count: int = connection.value("count_documents", collection_id=collection_id)
    return count


def sizes(connection: Connection) -> dict[str, int]:
    """How many collections, documents, characters, chunks and vectors the file holds."""
    return connection.rows("status_counts")[0]


def passages_of_collections(connection: Connection) -> dict[int, tuple[int, int]]:
    """How many passages each collection has, and how many of them a vector; by its row id."""
    rows = connection.tuples("passages_of_collections")
    return {collection_id: (passages, embedded) for collection_id, passages, embedded in rows}


def find_document(connection: Connection, collection_id: int, path: str) -> Row | None:
    """A document with its text."""
    return connection.row("document", collection_id=collection_id, path=path)


def document_paths(connection: Connection, collection_id: int) -> list[str]:
    """The ids of a collection's documents, in order."""
    rows = connection.tuples("document_paths", collection_id=collection_id)
    return [row[0] for row in rows]


def document_paths_from(
    connection: Connection, prefix: str, collection: str, limit: int
) -> list[str]:
    """Ids of documents, of one collection if it is named, that begin with some letters."""
    rows = connection.tuples(
        "document_paths_from", prefix=prefix, collection=collection, limit=limit
    )
    return [row[0] for row in rows]


def documents_page(
    connection: Connection, collection_id: int, limit: int = -1, offset: int = 0
) -> list[Row]:
    """One page of a collection's documents, or all: `id`, `title`, `size` in characters."""
    return connection.rows(
        "collection_documents", collection_id=collection_id, limit=limit, offset=offset
    )


def documents_of_project(
    connection: Connection, kinds: Sequence[str], project_id: int | None, limit: int, offset: int
) -> list[Row]:
    """One page of the documents that a project sees of these kinds, and of its own."""
    return connection.rows(
        "resource_documents",
        kinds=json.dumps(list(kinds)),
        project_id=project_id,
        limit=limit,
        offset=offset,
    )


def counts_by_kind(connection: Connection, project_id: int) -> list[Row]:
    """How many documents of each kind a project sees: `name` and `doc_count`."""
    return connection.rows("visible_documents", project_id=project_id)


def sections_of(connection: Connection, document_id: int) -> list[Row]:
    """A document's headings in order, with their places."""
    return connection.rows("document_sections", document_id=document_id)


def texts_of_collection(connection: Connection, collection_id: int) -> list[tuple[str, str]]:
    """Paths and texts of a collection's documents, by path."""
    return connection.tuples("collection_texts", collection_id=collection_id)


def stored_text(connection: Connection, collection_id: int, path: str) -> tuple[str, int] | None:
    """The text of a document, and its size in bytes on disk."""
    rows = connection.tuples("stored_text", collection_id=collection_id, path=path)
    return rows[0] if rows else None


def pages_of(connection: Connection, within: ChunkRange) -> list[tuple[str, str, str]]:
    """Path, title and text of the documents of a range of ids, in order."""
    first, last = within
    return connection.tuples("pages", first=first, last=last)


def texts_of(connection: Connection, document_ids: Sequence[int]) -> list[Row]:
    """These documents with path, title, metadata and text, by row id."""
    return connection.rows("document_contents", document_ids=json.dumps(list(document_ids)))


def documents_shown(connection: Connection, document_ids: Iterable[int]) -> dict[int, Row]:
    """What is shown of these documents in graphs and of archives, by row id."""
    listed = json.dumps(sorted(set(document_ids)))
    rows = connection.rows("archive_documents", document_ids=listed)
    return {row["document_id"]: with_source(connection, row, "folder") for row in rows}


def stored_file(connection: Connection, collection_id: int, path: str) -> Row | None:
    """What the file knows of the source of one document: its hash, size and time."""
    return connection.row("stored_file", collection_id=collection_id, path=path)


def stored_files(connection: Connection, collection_id: int) -> list[Row]:
    """As `stored_file`, of each document of a collection."""
    return connection.rows("stored_files", collection_id=collection_id)


def stored_private_keys(connection: Connection, collection_id: int) -> set[str]:
    """The paths of a collection's documents whose text begins as a private key."""
    rows = connection.tuples("stored_private_keys", collection_id=collection_id)
    return {row[0] for row in rows}


def indexed_document(connection: Connection, collection_id: int, path: str) -> Row | None:
    """What an index holds under a document id: its row id, hash and metadata."""
    return connection.row("stored_document", collection_id=collection_id, path=path)


def all_document_ids(connection: Connection) -> list[int]:
    """Every document."""
    return [row[0] for row in connection.tuples("all_document_ids")]


def title_and_text(connection: Connection, document_id: int) -> tuple[str, str] | None:
    """A document as the keyword index holds it; None where it is gone."""
    rows = connection.tuples("indexed_document", document_id=document_id)
    return rows[0] if rows else None


def beginnings_of_documents(connection: Connection, document_ids: Sequence[int]) -> list[str]:
    """The first 2,000 characters of each of these documents."""
    listed = json.dumps(list(document_ids))
    return [row[0] for row in connection.tuples("beginnings_of_documents", document_ids=listed)]


def documents_changed_since(
    connection: Connection, collection_id: int, since: str, limit: int
) -> list[Row]:
    """The documents of a collection that are newer than a time, the newest first: `path`, `title`
    and `changed_at`."""
    return connection.rows(
        "documents_changed_since", collection_id=collection_id, since=since, limit=limit
    )


def document_hashes(connection: Connection, kinds: Sequence[str]) -> dict[tuple[str, str], bytes]:
    """Of every document of some kinds, by collection and id, the hash of its source."""
    rows = connection.tuples("document_hashes", kinds=json.dumps(kinds))
    return {(collection, path): content_hash for collection, path, content_hash in rows}
