"""The passages of documents: which wait for a vector, and which document each belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kb.store.connection import Connection
from kb.store.ids import WHOLE_FILE, ChunkRange


class StoredChunk(NamedTuple):
    """A chunk, with the ranges of its document's text that it and its lead are."""

    chunk_id: int
    document_id: int
    heading_path: str
    start: int
    end: int
    lead_start: int
    lead_end: int
    text_hash: bytes


def count_chunks(connection: Connection) -> int:
    """All chunks of the file."""
    count: int = connection.value("count_chunks")
    return count


def count_waiting(connection: Connection, within: ChunkRange = WHOLE_FILE) -> int:
    """How many chunks of a range wait for their vector."""
    first, last = within
    count: int = connection.value("count_chunks_without_vector", first=first, last=last)
    return count


def count_with_vector(connection: Connection, within: ChunkRange) -> tuple[int, int]:
    """All chunks of a range, and how many of them have a vector."""
    first, last = within
    ((total, embedded),) = connection.tuples("count_chunks_and_vectors", first=first, last=last)
    return total, embedded


def has_waiting(connection: Connection, within: ChunkRange) -> bool:
    """Whether any chunk of a range waits for its vector."""
    first, last = within
    return bool(connection.value("has_chunk_without_vector", first=first, last=last))


def has_vectors(connection: Connection, within: ChunkRange) -> bool:
    """Whether any chunk of a range has a vector."""
    first, last = within
    return bool(connection.value("has_vectors", first=first, last=last))


def has_more_vectors(connection: Connection, most: int) -> bool:
    """Whether more chunks of the file than these have a vector."""
    return bool(connection.value("has_more_vectors", most=most))


def chunks_without_vector(
    connection: Connection, after: int, last: int, limit: int
) -> list[StoredChunk]:
    """The next chunks behind one and up to another that wait for their vector, in order."""
    rows = connection.tuples("chunks_without_vector", after=after, last=last, limit=limit)
    return [StoredChunk(*row) for row in rows]


def waiting_chunks(connection: Connection, within: ChunkRange) -> list[int]:
    """What waits for its vector: the beginning of each document, then the rest; newest first."""
    first, last = within
    return [row[0] for row in connection.tuples("waiting_chunks", first=first, last=last)]


def chunks_waiting_among(connection: Connection, chunk_ids: Sequence[int]) -> list[StoredChunk]:
    """Those of some chunks that wait for their vector, in the order asked for."""
    rows = connection.tuples("chunks_waiting_among", chunk_ids=json.dumps(chunk_ids))
    return [StoredChunk(*row) for row in rows]


def chunks_with_vector(
    connection: Connection, after: int, last: int, limit: int
) -> list[StoredChunk]:
    """As `chunks_without_vector`, of those that have one."""
    rows = connection.tuples("chunks_with_vector", after=after, last=last, limit=limit)
    return [StoredChunk(*row) for row in rows]


def chunks_with_text(
    connection: Connection, after: int, last: int, limit: int
) -> list[StoredChunk]:
    """As `chunks_without_vector`, of all."""
    rows = connection.tuples("chunks_with_text", after=after, last=last, limit=limit)
    return [StoredChunk(*row) for row in rows]


def chunks_of_documents(connection: Connection, document_ids: Iterable[int]) -> list[int]:
    """The chunks of these documents."""
    listed = json.dumps(list(document_ids))
    return [row[0] for row in connection.tuples("chunk_ids_of_documents", document_ids=listed)]


def documents_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, int]:
    """The document of each of these chunks, by row ids."""
    listed = json.dumps(sorted(chunk_ids))
    return dict(connection.tuples("document_ids_of_chunks", chunk_ids=listed))


def paths_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, str]:
    """The path of the document of each of these chunks."""
    listed = json.dumps(list(chunk_ids))
    return dict(connection.tuples("chunk_documents", chunk_ids=listed))


def count_chunks_of(connection: Connection, document_ids: Iterable[int]) -> dict[int, int]:
    """How many chunks each of some documents has."""
    listed = json.dumps(sorted(document_ids))
    return dict(connection.tuples("count_chunks_of", document_ids=listed))
