"""A stored document as what it was stored from, for another file."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kb.formats.chunk import Chunk
from kb.formats.convert.result import Place
from kb.formats.outline import Link, ParsedDocument, Section
from kb.store.citations import with_sentences
from kb.store.connection import Connection
from kb.store.contents import sections_of
from kb.store.documents import NewDocument

__all__ = ["WholeDocument", "whole_document"]


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A document to be stored once more, with the vectors of its passages by their text's hash."""

    new: NewDocument
    vectors: list[tuple[bytes, bytes]]


def whole_document(connection: Connection, document_id: int) -> WholeDocument:
    """A document with all that hangs on it but its blocks, which are in its text."""
    row = connection.rows("stored_document_row", document_id=document_id)[0]
    chunks = connection.rows("stored_chunks", document_id=document_id)
    parsed = ParsedDocument(
        title=row["title"],
        summary=row["summary"],
        front_matter=json.loads(row["metadata"]),
        sections=tuple(_sections(connection, document_id)),
        blocks=(),
        total_lines=row["line_count"],
        notices=(),
        links=tuple(
            Link(one["target_url"], one["kind"], one["line"], one["context"])
            for one in with_sentences(
                connection, connection.rows("stored_links", document_id=document_id)
            )
        ),
        labels=tuple(
            label for (label,) in connection.tuples("stored_labels", document_id=document_id)
        ),
        tags=tuple(tag for (tag,) in connection.tuples("stored_tags", document_id=document_id)),
    )
    new = NewDocument(
        path=row["path"],
        text=row["content"],
        content_hash=row["content_hash"],
        parsed=parsed,
        chunks=[
            Chunk(
                one["position"],
                one["section"],
                one["heading_path"],
                one["start_line"],
                one["end_line"],
                one["start_character"],
                one["end_character"],
            )
            for one in chunks
        ],
        encoding=row["encoding"],
        file_size=row["file_size"],
        modified_ns=row["modified_ns"],
        places=[
            Place(*place) for place in connection.tuples("stored_places", document_id=document_id)
        ],
    )
    vectors = {one["text_hash"]: one["vector"] for one in chunks if one["vector"] is not None}
    return WholeDocument(new, list(vectors.items()))


def _sections(connection: Connection, document_id: int) -> list[Section]:
    return [
        Section(
            position=row["position"],
            level=row["level"],
            heading=row["heading"],
            heading_path=row["heading_path"],
            parent=None,  # the paths are made already
            start_line=row["start_line"],
            end_line=row["end_line"],
            body_end_line=row["body_end_line"],
        )
        for row in sections_of(connection, document_id)
    ]
