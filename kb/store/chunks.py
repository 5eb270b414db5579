"""The passages of documents: their ids, and which of them wait for a vector.

The upper half of a document's or chunk's id is its collection's, so a collection is one range of
ids, and so is a search within it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kb.store.connection import Connection

ChunkRange = tuple[int, int]  # the first and the last chunk id
Ranges = Sequence[ChunkRange]

WHOLE_FILE: ChunkRange = (0, (1 << 63) - 1)


def collection_range(collection_id: int) -> ChunkRange:
    return collection_id << 32, (collection_id << 32) + 0xFFFFFFFF


def ranges_of(collection_ids: Iterable[int]) -> list[ChunkRange]:
    ranges: list[ChunkRange] = []
    for first, last in map(collection_range, sorted(collection_ids)):
        if ranges and ranges[-1][1] + 1 == first:
            first = ranges.pop()[0]
        ranges.append((first, last))
    return ranges


def range_around(row_ids: Collection[int]) -> ChunkRange:
    """The chunk ids from the first collection in which some documents or chunks lie to the last."""
    first, last = min(row_ids, default=0), max(row_ids, default=0)
    return collection_range(first >> 32)[0], collection_range(last >> 32)[1]


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


def chunk_ids(connection: Connection, *, with_vector: bool = False, limit: int = -1) -> list[int]:
    """All chunks of the file, or those with a vector, in order, up to the limit."""
    return connection.column("ordered_chunk_ids", with_vector=with_vector, limit=limit)


def count_waiting(connection: Connection, within: ChunkRange = WHOLE_FILE) -> int:
    return connection.count("count_chunks_without_vector", **_bounds(within))


def count_with_vector(connection: Connection, ranges: Collection[ChunkRange]) -> tuple[int, int]:
    ((total, embedded),) = connection.tuples("count_chunks_and_vectors", ranges=list(ranges))
    return total, embedded


def has_waiting(connection: Connection, within: ChunkRange) -> bool:
    return bool(connection.value("has_chunk_without_vector", **_bounds(within)))


def has_vectors(connection: Connection, within: ChunkRange) -> bool:
    return bool(connection.value("has_vectors", **_bounds(within)))


def has_more_vectors(connection: Connection, most: int) -> bool:
    return bool(connection.value("has_more_vectors", most=most))


def waiting_chunks(connection: Connection, within: ChunkRange) -> list[int]:
    """Chunks without a vector: the beginning of each document, then the rest; newest first."""
    return connection.column("waiting_chunks", **_bounds(within))


def chunks_to_embed(
    connection: Connection, chunk_ids: Sequence[int], *, anew: bool = False
) -> list[StoredChunk]:
    """Those of some chunks that wait for their vector, or `anew` all of them, in their order."""
    rows = connection.tuples("chunks_to_embed", chunk_ids=chunk_ids, anew=anew)
    return [StoredChunk(*row) for row in rows]


def chunks_of_documents(connection: Connection, document_ids: Iterable[int]) -> set[int]:
    """The chunks of these documents, nearly all of which have theirs in a row."""
    cached: dict[int, Sequence[int]] = connection.cached("chunks of documents")
    document_ids = [*document_ids]
    missing = [document_id for document_id in document_ids if document_id not in cached]
    for document_id, first, last, count in connection.tuples(
        "chunk_bounds_of_documents", document_ids=missing
    ):
        is_whole = last - first + 1 == count
        cached[document_id] = (
            range(first, last + 1)
            if is_whole
            else connection.column("chunk_ids_of_document", document_id=document_id)
        )
    return set(chain.from_iterable(cached.get(document_id, ()) for document_id in document_ids))


def documents_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, int]:
    return dict(connection.tuples("document_ids_of_chunks", chunk_ids=sorted(chunk_ids)))


def paths_of_chunks(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, str]:
    return dict(connection.tuples("chunk_documents", chunk_ids=[*chunk_ids]))


def count_chunks_of(connection: Connection, document_ids: Iterable[int]) -> dict[int, int]:
    return dict(connection.tuples("count_chunks_of", document_ids=sorted(document_ids)))


def merge_segments(connection: Connection) -> None:
    """Merge the keyword index into one segment, which drops the terms of what was deleted."""
    connection.run("merge_keyword_segments")


def passages_of_document(connection: Connection, document_id: int) -> list[tuple[str, ...]]:
    """All texts that the keyword index takes of a document's passages."""
    return connection.tuples("passages_of_document", document_id=document_id)


def passages_with(connection: Connection, match: str) -> Iterator[tuple[str, ...]]:
    """The texts of the first passages that match, one by one."""
    return connection.iterate("passages_with", query=match)


def passages_of_documents(
    connection: Connection, document_ids: Iterable[int]
) -> list[tuple[int, int | None, int, int, int, int, int, int]]:
    """The passages of some documents in order: document, section, lines, text and lead ranges."""
    return connection.tuples("passages_of_documents", document_ids=sorted(document_ids))


def _bounds(within: ChunkRange) -> dict[str, int]:
    return {"first": within[0], "last": within[1]}
