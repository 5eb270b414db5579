"""Documents of a named index: read, cut into passages and put in, in place of older ones."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from kb.disk.read import MAXIMUM_DOCUMENT, too_large
from kb.errors import DocumentTooComplex, IndexNotFound, UsageError
from kb.formats.chunk import chunk
from kb.formats.outline import ParsedDocument
from kb.formats.parse import parse
from kb.ingest.budget import within_budget
from kb.ingest.indexes import find_index
from kb.ingest.read_ahead import made_elsewhere
from kb.models.tokens import load_tokenizer
from kb.open_file import OpenFile
from kb.results.memory import BLANK_CONTENT, AddedDocument
from kb.search.bm25 import IndexOptions, count_words
from kb.settings import DEFAULT_INDEX
from kb.store.collections import find_index_row, insert_collection
from kb.store.contents import indexed_document
from kb.store.documents import NewDocument, store_called_document
from kb.text.terms import is_unspaced

MAXIMUM_METADATA = 1_000_000  # characters as JSON
# Longer texts are cut in their own process (.5 s to start): here they would hold up searches.
LARGE = 1_000_000
MAXIMUM_TITLE = 80  # characters of a first line that serves as title


def add_document(
    knowledge: OpenFile, name: str, doc_id: str, content: str, metadata: dict[str, Any]
) -> AddedDocument:
    """Put a document into an index, in place of an older one.

    The text, its keyword entries, citations and vectors change in one transaction. Vectors of new
    text follow later.

    Raises:
        IndexNotFound: there is no such index.
        UsageError: the content is blank, too large or too complex, or the metadata are no JSON.
    """
    if (size := len(content.encode("utf-8", "replace"))) > MAXIMUM_DOCUMENT:
        why = too_large(size, MAXIMUM_DOCUMENT)
        raise UsageError(
            f"The content is too large, {why}: add it in parts.",
            details={"fieldErrors": {"content": [why]}},
        )
    text = content.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise UsageError(BLANK_CONTENT, field="content")
    try:
        listed = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise UsageError(f"metadata cannot be stored as JSON: {error}", field="metadata") from error
    if len(listed) > MAXIMUM_METADATA:
        raise UsageError(
            f"metadata have {len(listed):,} characters as JSON, more than the {MAXIMUM_METADATA:,} "
            "that are stored with a document",
            field="metadata",
        )
    index = find_index(knowledge, name)
    database = index.database if index else knowledge.database
    content_hash = hashlib.sha256(content.encode()).digest()
    with database.read() as connection:
        tokens = count_words(connection, text, index.options if index else IndexOptions())
        stored = index and indexed_document(connection, index.collection_id, doc_id)
    if stored and (stored["content_hash"], stored["metadata"]) == (content_hash, listed):
        return AddedDocument(status="re-indexed", doc_id=doc_id, token_count=tokens)
    # Cut into passages before the file is locked.
    make = _prepared if len(text) < LARGE else partial(made_elsewhere, _prepared)
    new = make(doc_id, text, content_hash, metadata)
    if isinstance(new, DocumentTooComplex):
        raise DocumentTooComplex(
            f"The content {new.message}.",
            details={"fieldErrors": {"content": ["is too complex to be read"]}},
        )
    new = replace(new, text=text)
    with database.write() as connection:
        row = find_index_row(connection, name)
        if row is None and name != DEFAULT_INDEX:  # removed since
            raise IndexNotFound(f"Index not found: {name}")
        if row:
            collection_id = row["collection_id"]
        else:
            options = asdict(IndexOptions())
            collection_id = insert_collection(connection, DEFAULT_INDEX, "index", options=options)
        stored = indexed_document(connection, collection_id, doc_id)
        store_called_document(
            connection, collection_id, new, stored["document_id"] if stored else None
        )
    status = "indexed" if stored is None else "re-indexed"
    return AddedDocument(status=status, doc_id=doc_id, token_count=tokens)


def _prepared(
    doc_id: str, text: str, content_hash: bytes, metadata: dict[str, Any]
) -> NewDocument | DocumentTooComplex:
    """The document without its text, or why there is none."""
    try:
        return within_budget(text, lambda: _cut(doc_id, text, content_hash, metadata))
    except DocumentTooComplex as error:
        return error


def _cut(doc_id: str, text: str, content_hash: bytes, metadata: dict[str, Any]) -> NewDocument:
    """Parse as Markdown and cut into passages; front matter is text too."""
    parsed = parse(text, "content.md")
    blocks = tuple(
        replace(block, kind="paragraph") if block.kind == "front_matter" else block
        for block in parsed.blocks
    )
    parsed = replace(parsed, title=_title(parsed, text), front_matter={}, blocks=blocks)
    return NewDocument(
        path=doc_id,
        text="",
        content_hash=content_hash,
        parsed=parsed,
        chunks=chunk(text, parsed, load_tokenizer()),
        metadata=metadata,
    )


def _title(parsed: ParsedDocument, text: str) -> str:
    """The first heading or line. The id would be found by words that the text does not hold."""
    first = next((section.heading for section in parsed.sections if section.heading), "")
    line = first or next(line for line in text.split("\n") if line.strip())
    words = " ".join(line.split())
    start = words[:MAXIMUM_TITLE]
    if len(words) <= MAXIMUM_TITLE or is_unspaced(words[MAXIMUM_TITLE]):
        return start
    return start.rpartition(" ")[0]
