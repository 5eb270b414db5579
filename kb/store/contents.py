"""What the file holds: documents, their texts, headings, origins and addresses, and their passages.

The upper half of a document's or chunk's id is its collection's, so a collection is one range of
ids, and so is a search within it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple
from urllib.parse import quote

from kb.disk.read import FileState
from kb.sources.address import located
from kb.store.connection import Connection, Row

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


def count_documents(connection: Connection, collection_id: int) -> int:
    return connection.count("count_documents", collection_id=collection_id)


def documents_of_collections(connection: Connection) -> Counter[int]:
    return Counter(dict(connection.tuples("documents_of_collections")))


def sizes(connection: Connection) -> dict[str, int]:
    """How many collections, documents, characters, chunks and vectors the file holds."""
    return connection.rows("status_counts")[0]


def passages_of_collections(connection: Connection) -> dict[int, tuple[int, int]]:
    """How many passages each collection has, and how many of them a vector; by its row id."""
    rows = connection.tuples("passages_of_collections")
    return {collection_id: (passages, embedded) for collection_id, passages, embedded in rows}


def find_document(connection: Connection, collection_id: int, path: str) -> Row | None:
    return connection.row("document", collection_id=collection_id, path=path)


def document_paths(connection: Connection, collection_id: int) -> list[str]:
    return connection.column("document_paths", collection_id=collection_id)


def paths_at_both_ends(connection: Connection, collection_id: int) -> list[str]:
    """The first and the last ten ids of a collection's documents."""
    return connection.column("document_paths_at_both_ends", collection_id=collection_id, limit=10)


def document_paths_from(
    connection: Connection, prefix: str, collection: str, limit: int
) -> list[str]:
    """Ids of documents with this beginning, of one collection if it is named."""
    return connection.column(
        "document_paths_from", prefix=prefix, collection=collection, limit=limit
    )


def documents_page(
    connection: Connection, collection_id: int, limit: int = -1, offset: int = 0, sort: str = "id"
) -> list[Row]:
    """A page of a collection's documents: `id`, `title`, `size` in characters; sorted by "id", or
    by "date", the newest first, with `date` where there is one."""
    statement = "collection_documents_by_date" if sort == "date" else "collection_documents"
    return connection.rows(statement, collection_id=collection_id, limit=limit, offset=offset)


def newest_documents(
    connection: Connection, collections: Iterable[Row], limit: int
) -> list[tuple[str, Row]]:
    """The newest documents of some collections, each with its collection's name."""
    ids = [row["collection_id"] for row in collections]
    rows = connection.rows("newest_documents", collection_ids=ids, limit=limit)
    return [(row.pop("collection"), row) for row in rows]


def documents_of_project(
    connection: Connection, kinds: Sequence[str], project_id: int | None, limit: int, offset: int
) -> list[Row]:
    """One page of the documents of these kinds that a project sees, and of its own."""
    return connection.rows(
        "resource_documents", kinds=[*kinds], project_id=project_id, limit=limit, offset=offset
    )


def counts_by_kind(connection: Connection, project_id: int) -> list[Row]:
    """How many documents of each kind a project sees: `name` and `doc_count`."""
    return connection.rows("visible_documents", project_id=project_id)


def sections_of(connection: Connection, document_id: int) -> list[Row]:
    return connection.rows("document_sections", document_id=document_id)


def sections_of_documents(connection: Connection, document_ids: Iterable[int]) -> list[Row]:
    return connection.rows("sections_of_documents", document_ids=sorted(document_ids))


def texts_of_collection(connection: Connection, collection_id: int) -> list[tuple[str, str]]:
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
    return connection.rows("document_contents", document_ids=[*document_ids])


def documents_shown(connection: Connection, document_ids: Iterable[int]) -> dict[int, Row]:
    """What graphs and archives show of these documents, by row id."""
    rows = connection.rows("archive_documents", document_ids=sorted(set(document_ids)))
    return {row["document_id"]: with_source(connection, row, "folder") for row in rows}


def with_source(connection: Connection, row: Row, key: str = "source") -> Row:
    """A row whose source is where it is now, not relative to the project."""
    return {**row, key: located(row[key], connection.folder) if row[key] else row[key]}


def stored_file(connection: Connection, collection_id: int, path: str) -> Row | None:
    """What is stored of a document's source: its hash, and its state (`state_of`)."""
    return connection.row("stored_file", collection_id=collection_id, path=path)


def stored_files(connection: Connection, collection_id: int) -> list[Row]:
    """As `stored_file`, of each document of a collection."""
    return connection.rows("stored_files", collection_id=collection_id)


def state_of(row: Row) -> FileState:
    return FileState(row["file_size"], row["modified_ns"], row["changed_ns"], row["inode"])


def stored_private_keys(connection: Connection, collection_id: int) -> set[str]:
    """The paths of a collection's documents whose text begins as a private key."""
    return set(connection.column("stored_private_keys", collection_id=collection_id))


def indexed_document(connection: Connection, collection_id: int, path: str) -> Row | None:
    """What an index holds under a document id: its row id, hash and metadata."""
    return connection.row("stored_document", collection_id=collection_id, path=path)


def all_document_ids(connection: Connection) -> list[int]:
    return connection.column("all_document_ids")


def title_and_text(connection: Connection, document_id: int) -> tuple[str, str] | None:
    rows = connection.tuples("indexed_document", document_id=document_id)
    return rows[0] if rows else None


def texts_to_embed(connection: Connection, chunks: Iterable[StoredChunk]) -> dict[bytes, str]:
    """The text to embed of each chunk, by its hash. Reads one document after the other."""
    from kb.formats.chunk import embedding_text, passage  # here: it brings the parser

    texts: dict[bytes, str] = {}
    by_document = sorted(chunks, key=lambda chunk: chunk.document_id)
    for document_id, group in groupby(by_document, key=lambda chunk: chunk.document_id):
        title, content = title_and_text(connection, document_id) or ("", "")
        for chunk in group:
            body = passage(content, chunk.start, chunk.end, (chunk.lead_start, chunk.lead_end))
            texts[chunk.text_hash] = embedding_text(title, chunk.heading_path, body)
    return texts


def beginnings_of_documents(connection: Connection, document_ids: Sequence[int]) -> list[str]:
    """The first 2,000 characters of each of these documents."""
    return connection.column("beginnings_of_documents", document_ids=[*document_ids])


def documents_changed_since(
    connection: Connection, collection_id: int, since: str, limit: int
) -> list[Row]:
    """The documents newer than a time, the newest first: `path`, `title` and `changed_at`."""
    return connection.rows(
        "documents_changed_since", collection_id=collection_id, since=since, limit=limit
    )


def document_hashes(connection: Connection, kinds: Sequence[str]) -> dict[tuple[str, str], bytes]:
    """The hash of each document's source, by collection and id."""
    rows = connection.tuples("document_hashes", kinds=kinds)
    return {(collection, path): content_hash for collection, path, content_hash in rows}


def address_of(row: Row, path: str) -> str | None:
    """The address of a document, from a row with `own_url` and `base_url`; None without."""
    address, base = row["own_url"], row["base_url"]
    if isinstance(address, str) and address.startswith(("http://", "https://")):
        return address
    return f"{base.rstrip('/')}/{quote(path)}" if isinstance(base, str) and base else None


def address_fields(row: Row, path: str) -> dict[str, str]:
    """As `address_of`, as `{"url": ...}`, or nothing."""
    url = address_of(row, path)
    return {"url": url} if url else {}


_NUMBERED = ("page", "slide", "cell")


class Origins:
    """Where lines of converted documents come from: page, slide, sheet or cell.

    Each origin holds from its line on up to the next one's.
    """

    def __init__(self, connection: Connection, document_ids: Iterable[int]) -> None:
        self._by_document: dict[int, list[tuple[int, str, str]]] = {}
        ids = sorted(set(document_ids))
        rows = connection.tuples("places_of_documents", document_ids=ids)
        for document_id, line, kind, label in rows:
            self._by_document.setdefault(document_id, []).append((line, kind, label))

    def fields(self, document_id: int, first: int, last: int) -> dict[str, Any]:
        """`location` by the names that a client reads: `{"page": 3, "endPage": 4}`."""
        if document_id not in self._by_document:
            return {}
        location = self.location(document_id, first, last)
        return {re.sub("_(.)", lambda m: m[1].upper(), key): location[key] for key in location}

    def location(self, document_id: int, first: int, last: int) -> dict[str, Any]:
        """`{"page": 3, "end_page": 4}`: the end only where it differs; {} without an origin."""
        begin = self._at(document_id, first)
        if begin is None:
            return {}
        _, kind, label = begin
        *_, last_label = self._at(document_id, last) or begin
        end = {f"end_{kind}": _value(kind, last_label)} if last_label != label else {}
        return {kind: _value(kind, label), **end}

    def _at(self, document_id: int, line: int) -> tuple[int, str, str] | None:
        origins = self._by_document.get(document_id, [])
        index = bisect_right(origins, line, key=lambda origin: origin[0])
        return origins[index - 1] if index else None


def _value(kind: str, label: str) -> int | str:
    return int(label) if kind in _NUMBERED and label.isdigit() else label


def indexed_texts(connection: Connection, chunk_ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """The id of each chunk, and its texts in the keyword index."""
    return connection.tuples("indexed_texts", chunk_ids=list(chunk_ids))
