"""Store, replace or delete one document with all that hangs on it.

Call inside a write transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb.formats.chunk import Chunk, embedding_text, passage
from kb.formats.convert.result import Place
from kb.formats.leads import NO_LEAD
from kb.formats.outline import ParsedDocument
from kb.formats.tags import names_of
from kb.models.embedder import text_hash
from kb.store.citations import forget_citations, resolve_again, store_citations
from kb.store.collections import delete_row
from kb.store.connection import Connection
from kb.store.contents import stored_files, title_and_text
from kb.store.embeddings import current_model, delete_unused_vectors, vectors_of
from kb.store.similar import forget_similar, store_similar
from kb.store.vectors import rebuild_document_vectors, rebuild_slabs
from kb.store.vocabulary import add_words
from kb.text.terms import extra_terms
from kb.text.times import utc_now

MOST_LOOKED_THROUGH = 50_000  # characters in which the words of tags are looked for


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document that is ready to be stored."""

    path: str
    text: str
    content_hash: bytes
    parsed: ParsedDocument
    chunks: Sequence[Chunk]
    encoding: str = "utf-8"
    file_size: int | None = None
    modified_ns: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # beside the front matter
    places: Sequence[Place] = ()  # of a converted document


def store_document(
    connection: Connection, collection_id: int, new: NewDocument, document_id: int | None = None
) -> int:
    """Store a document; with `document_id`, in that one's place. Returns its row id.

    Chunks whose embedded text has a vector already get it at once; the others wait for
    `kb.ingest.embed.embed_pending`.
    """
    metadata = {**new.parsed.front_matter, **new.metadata}
    fields = {
        "title": new.parsed.title,
        "summary": new.parsed.summary,
        "metadata": json.dumps(metadata, ensure_ascii=False, allow_nan=False),
        "content_hash": new.content_hash,
        "encoding": new.encoding,
        "file_size": new.file_size,
        "modified_ns": new.modified_ns,
        "character_count": len(new.text),
        "line_count": new.parsed.total_lines,
        "indexed_at": utc_now(),
        "content": new.text,
    }
    old_chunk_ids: list[int] = []
    if document_id is None:
        document_id = int(connection.value("next_document_id", collection_id=collection_id))
        connection.run(
            "insert_document",
            document_id=document_id,
            collection_id=collection_id,
            path=new.path,
            **fields,
        )
    else:
        old_chunk_ids = _delete_parts(connection, document_id)
        connection.run("update_document", document_id=document_id, path=new.path, **fields)
    connection.run_many(
        "insert_section", (_section_fields(section, document_id) for section in new.parsed.sections)
    )
    connection.run_many(
        "insert_place",
        (
            {
                "document_id": document_id,
                "start_line": place.line,
                "kind": place.kind,
                "label": place.label,
            }
            for place in new.places
        ),
    )
    with_vector = _insert_chunks(connection, collection_id, document_id, new, old_chunk_ids)
    store_citations(
        connection,
        document_id,
        collection_id,
        new.path,
        new.parsed.title,
        metadata,
        new.text,
        new.parsed.links,
        new.parsed.labels,
        new.parsed.tags,
    )
    store_similar(connection, document_id, new.parsed, new.text, metadata)
    rebuild_slabs(connection, {*old_chunk_ids, *with_vector})
    rebuild_document_vectors(connection, [document_id])
    return document_id


def delete_document(connection: Connection, document_id: int) -> None:
    """Delete a document with its chunks, index entries and citations."""
    chunk_ids = _delete_parts(connection, document_id)
    keys = forget_citations(connection, document_id)
    forget_similar(connection, document_id)
    connection.run("delete_document", document_id=document_id)
    resolve_again(connection, keys)
    rebuild_slabs(connection, chunk_ids)


def delete_collection(connection: Connection, collection_id: int) -> None:
    """Delete a collection with all its documents."""
    for row in stored_files(connection, collection_id):
        delete_document(connection, row["document_id"])
    delete_row(connection, collection_id)
    delete_unused_vectors(connection)


def touch_documents(connection: Connection, stamps: Iterable[tuple[int, int, int | None]]) -> None:
    """Note that files were written again with the same content: document, size, time."""
    connection.run_many(
        "touch_document",
        (
            {"document_id": document_id, "file_size": size, "modified_ns": modified_ns}
            for document_id, size, modified_ns in stamps
        ),
    )


def forget_content_hashes(connection: Connection, collection_id: int) -> None:
    """Make the next sync read a collection's documents as if they had changed."""
    connection.run("forget_content_hashes", collection_id=collection_id)


def _delete_parts(connection: Connection, document_id: int) -> list[int]:
    """Delete what hangs on a document; the chunk ids that are free now."""
    document = title_and_text(connection, document_id)
    if document is None:
        return []
    title, content = document
    chunks = connection.tuples("indexed_chunks", document_id=document_id)
    # Cut here, not by SQL's substr, which reads a long document once more for each chunk.
    connection.run_many(
        "unindex_chunk",
        (
            {
                "chunk_id": chunk_id,
                "title": title,
                "heading": heading_path,
                "body": content[start:end],
                "extra": _indexed_extra(extra, content[lead_start:lead_end]),
            }
            for chunk_id, heading_path, start, end, lead_start, lead_end, extra in chunks
        ),
    )
    connection.run("delete_chunks", document_id=document_id)
    connection.run("delete_sections", document_id=document_id)
    connection.run("delete_places", document_id=document_id)
    return [chunk_id for chunk_id, *_ in chunks]


def _insert_chunks(
    connection: Connection,
    collection_id: int,
    document_id: int,
    new: NewDocument,
    free_ids: Sequence[int],
) -> list[int]:
    """Insert the chunks, indexed; the ids of those that have a vector already."""
    bodies = [new.text[chunk.start_character : chunk.end_character] for chunk in new.chunks]
    leads = [new.text[slice(*chunk.lead)] for chunk in new.chunks]
    hashes = [
        text_hash(
            embedding_text(
                new.parsed.title,
                chunk.heading_path,
                passage(new.text, chunk.start_character, chunk.end_character, chunk.lead),
            )
        )
        for chunk in new.chunks
    ]
    model = current_model(connection)
    known = vectors_of(connection, model["model_id"], hashes) if model and hashes else {}
    # An edited document keeps its chunk ids, so that few slabs change.
    ids = sorted(free_ids)[: len(new.chunks)]
    next_id = connection.value("next_chunk_id", collection_id=collection_id)
    next_id = max([next_id, *(chunk_id + 1 for chunk_id in ids)])
    ids += range(next_id, next_id + len(new.chunks) - len(ids))
    names = [_names_to_index(connection, new), *[""] * len(bodies)][: len(bodies)]
    extras = [
        _extra_terms(names, new.parsed.title, chunk.heading_path, lead, body)
        for chunk, lead, body, names in zip(new.chunks, leads, bodies, names, strict=True)
    ]
    add_words(
        connection, {new.parsed.title, *bodies, *(c.heading_path for c in new.chunks), *extras}
    )
    connection.run_many(
        "insert_chunk",
        (
            {
                "chunk_id": chunk_id,
                "document_id": document_id,
                "position": chunk.position,
                "section": chunk.section,
                "start_line": chunk.start_line,
                "end_line": chunk.end_line,
                "start_character": chunk.start_character,
                "end_character": chunk.end_character,
                "extra_terms": extra,
                "text_hash": value,
                "vector_id": known.get(value),
            }
            for chunk_id, chunk, extra, value in zip(ids, new.chunks, extras, hashes, strict=True)
        ),
    )
    connection.run_many(
        "insert_lead",
        (
            {"chunk_id": chunk_id, "start_character": chunk.lead[0], "end_character": chunk.lead[1]}
            for chunk_id, chunk in zip(ids, new.chunks, strict=True)
            if chunk.lead != NO_LEAD
        ),
    )
    connection.run_many(
        "index_chunk",
        (
            {
                "chunk_id": chunk_id,
                "title": new.parsed.title,
                "heading": chunk.heading_path,
                "body": body,
                "extra": _indexed_extra(extra, lead),
            }
            for chunk_id, chunk, lead, body, extra in zip(
                ids, new.chunks, leads, bodies, extras, strict=True
            )
        ),
    )
    return [chunk_id for chunk_id, value in zip(ids, hashes, strict=True) if value in known]


def _names_to_index(connection: Connection, new: NewDocument) -> str:
    """The aliases and tags that are indexed with the first passage, a name a line.

    Not those whose words the document has anyway: it is found by them, and a tag `wind` made the
    opening of a page on wind better than the steps that it describes.
    """
    names = names_of(new.parsed.front_matter).splitlines()
    if not names or not new.chunks:
        return ""
    start = new.chunks[0].start_character
    beginning = new.text[start : start + MOST_LOOKED_THROUGH]
    held = _stems(connection, f"{new.parsed.title}\n{beginning}")
    return "\n".join(name for name in names if not _stems(connection, name) <= held)


def _stems(connection: Connection, text: str) -> set[str]:
    return {stem for _, _, stem in connection.tokenize(text, stem=True)}


def _extra_terms(names: str, *texts: str) -> str:
    terms = extra_terms("\n".join((*texts, names)))
    return "\n".join(filter(None, (terms, names)))


def _indexed_extra(extra: str, lead: str) -> str:
    """The extra terms of a chunk as `chunk_texts` has them."""
    return f"{extra}\n{lead}" if lead else extra


def _section_fields(section: Any, document_id: int) -> dict[str, Any]:
    return {
        "document_id": document_id,
        "position": section.position,
        "level": section.level,
        "heading": section.heading,
        "heading_path": section.heading_path,
        "start_line": section.start_line,
        "end_line": section.end_line,
        "body_end_line": section.body_end_line,
    }
