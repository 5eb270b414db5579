"""Store, replace or delete one document with all that hangs on it.

Call inside a write transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb.disk.read import UNKNOWN_STATE, FileState
from kb.formats.chunk import Chunk, embedding_text, passage
from kb.formats.convert.result import Origin
from kb.formats.metadata import document_date, names_of
from kb.formats.outline import Link, ParsedDocument, Section
from kb.formats.pieces import NO_LEAD
from kb.models.embedder import text_hash
from kb.store.citations import keys_of, resolve_again, store_citations, with_sentences
from kb.store.collections import delete_row
from kb.store.connection import Connection, Row
from kb.store.contents import sections_of, state_of, stored_files, title_and_text
from kb.store.similar import forget_similar, store_similar
from kb.store.tidying import tidy_a_little
from kb.store.vectors import (
    current_model,
    delete_if_unused,
    delete_unused_vectors,
    rebuild_document_vectors,
    rebuild_slabs,
    vectors_of,
    vectors_of_document,
)
from kb.store.vocabulary import add_words
from kb.text.terms import extra_terms
from kb.text.times import utc_now

MOST_LOOKED_THROUGH = 50_000  # characters in which the words of tags are looked for


@dataclass(frozen=True, slots=True)
class NewDocument:
    path: str
    text: str
    content_hash: bytes
    parsed: ParsedDocument
    chunks: Sequence[Chunk]
    encoding: str = "utf-8"
    file: FileState = UNKNOWN_STATE
    metadata: dict[str, Any] = field(default_factory=dict)  # beside the front matter
    origins: Sequence[Origin] = ()  # of a converted document
    file_date: str = ""  # where neither front matter nor path says one


def store_document(
    connection: Connection, collection_id: int, new: NewDocument, document_id: int | None = None
) -> int:
    """Store a document; with `document_id`, in that one's place. Returns its row id.

    Chunks whose embedded text has a vector already get it at once; the others wait for
    `kb.ingest.embed.embed_pending`.
    """
    metadata = {**new.parsed.front_matter, **new.metadata}
    old_chunk_ids: list[int] = []
    if document_id is None:
        document_id = connection.count("next_document_id", collection_id=collection_id)
    else:
        old_chunk_ids = _delete_parts(connection, document_id)
    connection.run(
        "store_document_row",
        document_id=document_id,
        collection_id=collection_id,
        path=new.path,
        title=new.parsed.title,
        summary=new.parsed.summary,
        metadata=json.dumps(metadata, ensure_ascii=False, allow_nan=False),
        content_hash=new.content_hash,
        encoding=new.encoding,
        file_size=new.file.size,
        modified_ns=new.file.modified_ns,
        character_count=len(new.text),
        line_count=new.parsed.total_lines,
        indexed_at=utc_now(),
        content=new.text,
    )
    _store_file_state(connection, document_id, new.file)
    connection.run_many(
        "insert_section",
        ({"document_id": document_id, **_columns(section)} for section in new.parsed.sections),
    )
    connection.run_many(
        "insert_place", ({"document_id": document_id, **_columns(origin)} for origin in new.origins)
    )
    embedded = _insert_chunks(connection, collection_id, document_id, new, old_chunk_ids)
    date = document_date(metadata, new.path) or new.file_date
    store_citations(connection, document_id, collection_id, new, metadata, date)
    store_similar(connection, document_id, new, metadata)
    if with_vectors := {*old_chunk_ids, *embedded}:
        rebuild_slabs(connection, with_vectors)
        rebuild_document_vectors(connection, [document_id])
    return document_id


def _columns(part: Section | Origin | Chunk) -> Row:
    """A part of a document by its fields: `asdict` copies each value, 40 us a small document."""
    return {name: getattr(part, name) for name in part.__slots__}


def store_called_document(
    connection: Connection, collection_id: int, new: NewDocument, document_id: int | None
) -> None:
    """Store a document that a call brings, and tidy up, since no sync follows."""
    replaced = [] if document_id is None else vectors_of_document(connection, document_id)
    store_document(connection, collection_id, new, document_id)
    delete_if_unused(connection, replaced)
    tidy_a_little(connection)


def delete_document(connection: Connection, document_id: int) -> None:
    chunk_ids = _delete_parts(connection, document_id)
    keys = keys_of(connection, document_id)  # that nobody may answer to once it is gone
    connection.run("delete_document", document_id=document_id)
    resolve_again(connection, keys)
    rebuild_slabs(connection, chunk_ids)


def delete_collection(connection: Connection, collection_id: int) -> None:
    for row in stored_files(connection, collection_id):
        delete_document(connection, row["document_id"])
    delete_row(connection, collection_id)
    delete_unused_vectors(connection)


def touch_documents(connection: Connection, touched: Iterable[tuple[int, FileState]]) -> None:
    """Note the new state of files that were written again with the same content."""
    for document_id, file in touched:
        state = {"file_size": file.size, "modified_ns": file.modified_ns}
        connection.run("touch_document", document_id=document_id, **state)
        _store_file_state(connection, document_id, file)


def _store_file_state(connection: Connection, document_id: int, file: FileState) -> None:
    if file.changed_ns is None or file.inode is None:
        connection.run("delete_file_state", document_id=document_id)
    else:
        state = {"changed_ns": file.changed_ns, "inode": file.inode}
        connection.run("insert_file_state", document_id=document_id, **state)


def forget_content_hashes(connection: Connection, collection_id: int) -> None:
    """Make the next sync read a collection's documents as if they had changed."""
    connection.run("forget_content_hashes", collection_id=collection_id)


def _delete_parts(connection: Connection, document_id: int) -> list[int]:
    """Delete what belongs to a document; the chunk ids that become free."""
    document = title_and_text(connection, document_id)
    if document is None:
        return []
    title, content = document
    chunks = connection.tuples("indexed_chunks", document_id=document_id)
    # Cut here, not by SQL's substr, which reads a long document once more for each chunk.
    indexed = (
        {
            "chunk_id": chunk_id,
            "title": title,
            "heading": heading_path,
            "body": content[start:end],
            "extra": _indexed_extra(extra, content[lead_start:lead_end]),
        }
        for chunk_id, heading_path, start, end, lead_start, lead_end, extra in chunks
    )
    connection.run_many("unindex_chunk", indexed)
    for statement in ("delete_chunks", "delete_sections", "delete_places", "delete_citations"):
        connection.run(statement, document_id=document_id)
    forget_similar(connection, document_id)
    return [chunk_id for chunk_id, *_ in chunks]


def _insert_chunks(
    connection: Connection,
    collection_id: int,
    document_id: int,
    new: NewDocument,
    free_ids: Sequence[int],
) -> list[int]:
    """Insert and index the chunks; the ids of those that already have a vector."""
    # An edited document keeps its chunk ids, so that few slabs change.
    ids = sorted(free_ids)[: len(new.chunks)]
    next_id = connection.count("next_chunk_id", collection_id=collection_id)
    next_id = max([next_id, *(chunk_id + 1 for chunk_id in ids)])
    ids += range(next_id, next_id + len(new.chunks) - len(ids))
    title, names = new.parsed.title, _names_to_index(connection, new)
    rows: list[Row] = []
    for chunk_id, chunk in zip(ids, new.chunks, strict=True):
        start, end, lead = chunk.start_character, chunk.end_character, new.text[slice(*chunk.lead)]
        body = new.text[start:end]
        terms = extra_terms("\n".join((title, chunk.heading_path, lead, body, names)))
        extra = "\n".join(filter(None, (terms, names)))
        names = ""  # they go with the first
        whole = passage(new.text, start, end, chunk.lead)
        hashed = text_hash(embedding_text(title, chunk.heading_path, whole))
        of_chunk = {"chunk_id": chunk_id, "document_id": document_id, "text_hash": hashed}
        texts = {"title": title, "body": body, "extra": _indexed_extra(extra, lead)}
        rows.append({**_columns(chunk), **of_chunk, **texts, "extra_terms": extra})
    model = current_model(connection)
    hashes = [row["text_hash"] for row in rows]
    vectors = vectors_of(connection, model["model_id"], hashes) if model and rows else {}
    for row in rows:
        row["vector_id"] = vectors.get(row["text_hash"])
    written = (row[name] for row in rows for name in ("body", "heading_path", "extra_terms"))
    add_words(connection, {title, *written})
    connection.run_many("insert_chunk", rows)
    leads = ((row["chunk_id"], *row["lead"]) for row in rows if row["lead"] != NO_LEAD)
    keys = ("chunk_id", "start_character", "end_character")
    connection.run_many("insert_lead", (dict(zip(keys, lead, strict=True)) for lead in leads))
    connection.run_many("index_chunk", rows)
    return [row["chunk_id"] for row in rows if row["vector_id"] is not None]


def _names_to_index(connection: Connection, new: NewDocument) -> str:
    """Aliases and tags whose words the document lacks; others would rank its opening too high."""
    names = names_of(new.parsed.front_matter).splitlines()
    if not names or not new.chunks:
        return ""
    start = new.chunks[0].start_character
    beginning = new.text[start : start + MOST_LOOKED_THROUGH]
    stems = set(connection.stems(f"{new.parsed.title}\n{beginning}"))
    return "\n".join(name for name in names if not stems.issuperset(connection.stems(name)))


def _indexed_extra(extra: str, lead: str) -> str:
    return f"{extra}\n{lead}" if lead else extra


def whole_document(
    connection: Connection, document_id: int
) -> tuple[NewDocument, dict[bytes, bytes]]:
    """A document to store once more, without its blocks; its passages' vectors by text hash."""
    (row,) = connection.rows("stored_document_row", document_id=document_id)
    links = connection.rows("stored_links", document_id=document_id)
    chunks = connection.tuples("stored_chunks", document_id=document_id)
    origins = connection.tuples("stored_places", document_id=document_id)
    parsed = ParsedDocument(
        title=row["title"],
        summary=row["summary"],
        front_matter=json.loads(row["metadata"]),
        # Their paths are already made: parents are not needed.
        sections=tuple(
            Section(parent=None, **section) for section in sections_of(connection, document_id)
        ),
        blocks=(),
        total_lines=row["line_count"],
        notices=(),
        links=tuple(
            Link(*(link[key] for key in ("target_url", "kind", "line", "context", "target_key")))
            for link in with_sentences(connection, links)
        ),
        labels=tuple(connection.column("stored_labels", document_id=document_id)),
        tags=tuple(connection.column("stored_tags", document_id=document_id)),
    )
    new = NewDocument(
        path=row["path"],
        text=row["content"],
        content_hash=row["content_hash"],
        parsed=parsed,
        chunks=[Chunk(*(*columns, (start, end))) for *columns, start, end, _, _ in chunks],
        encoding=row["encoding"],
        file=state_of(row),
        origins=[Origin(*row) for row in origins],
        file_date=row["date"] or "",
    )
    vectors = {text_hash: vector for *_, text_hash, vector in chunks if vector is not None}
    return new, vectors
