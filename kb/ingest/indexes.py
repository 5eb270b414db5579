"""Named indexes: collections that are filled by tool calls, in the file or in memory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from kb.disk.read import MAXIMUM_DOCUMENT, too_large
from kb.errors import DocumentTooComplex, IndexExists, IndexNotFound, UnknownBackend, UsageError
from kb.formats.chunk import chunk
from kb.formats.outline import ParsedDocument
from kb.formats.parse import parse
from kb.ingest.budget import within_budget
from kb.models.tokens import load_tokenizer
from kb.open_file import OpenFile
from kb.results.memory import BLANK_CONTENT, AddedDocument, CreatedIndex
from kb.search.bm25 import IndexOptions, count_words
from kb.settings import DEFAULT_INDEX
from kb.store.collections import (
    all_collections,
    find_collection_id,
    find_index_row,
    index_names,
    insert_collection,
)
from kb.store.contents import indexed_document
from kb.store.database import Database
from kb.store.documents import NewDocument, store_called_document
from kb.text.nearest import nearest
from kb.text.terms import is_unspaced

BACKENDS = ("sqlite", "memory")
MAXIMUM_METADATA = 1_000_000  # characters as JSON
# Longer texts are cut in their own process (.5 s to start): here they would hold up searches.
LARGE = 1_000_000
MAXIMUM_TITLE = 80  # characters of a first line that serves as title


@dataclass(frozen=True, slots=True)
class Index:
    """Where an index is kept, and its options for words."""

    name: str
    database: Database
    collection_id: int
    options: IndexOptions


def find_index(knowledge: OpenFile, name: str) -> Index | None:
    """An index by its name; None for an empty default one. Raises IndexNotFound with near names."""
    names: list[str] = []
    for database in knowledge.databases:
        with database.read() as connection:
            if row := find_index_row(connection, name):
                options = IndexOptions.from_json(row["options"])
                return Index(name, database, row["collection_id"], options)
            names += index_names(connection)
    if hint := _other_kind(knowledge, name):
        raise IndexNotFound(f"Index not found: {name}", hint=hint)
    if name == DEFAULT_INDEX:
        return None
    raise IndexNotFound(
        f"Index not found: {name}",
        near=lambda: nearest(name, [*names, DEFAULT_INDEX]),
        hint="search_create_index makes one",
    )


def create_index(
    knowledge: OpenFile, name: str, backend: str, options: IndexOptions
) -> CreatedIndex:
    """As `Memory.create_index`."""
    if backend not in BACKENDS:
        raise UnknownBackend(f"Unknown backend: {backend}", backends=list(BACKENDS))
    hint = _other_kind(knowledge, name)
    is_taken = bool(hint) or name == DEFAULT_INDEX
    for database in knowledge.databases:
        with database.read() as connection:
            is_taken = is_taken or find_collection_id(connection, name) is not None
    if is_taken:
        raise IndexExists(f"Index already exists: {name}", **({"hint": hint} if hint else {}))
    target = knowledge.memory if backend == "memory" else knowledge.database
    with target.write() as connection:
        if find_collection_id(connection, name) is not None:  # made by another process since
            raise IndexExists(f"Index already exists: {name}")
        insert_collection(connection, name, "index", options=asdict(options))
    return CreatedIndex(status="created", index_name=name, backend=backend)


def _other_kind(knowledge: OpenFile, name: str) -> str:
    """What to do with the name of a collection of another kind; "" for other names."""
    with knowledge.database.read() as connection:
        row = next((row for row in all_collections(connection) if row["name"] == name), None)
    if row is None or row["kind"] == "index":
        return ""
    origin = f"comes from {row['source']}" if row["source"] else f"holds {row['kind']}"
    return (
        f'"{name}" is a collection that {origin}, not an index: search it with documents_search, '
        "or make an index of another name with search_create_index"
    )


def add_document(
    knowledge: OpenFile, name: str, doc_id: str, content: str, metadata: dict[str, Any]
) -> AddedDocument:
    """As `Memory.add_document`; IndexNotFound if there is no such index.

    The text, its keyword entries, citations and vectors change in one transaction. Vectors of new
    text follow later.
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
    if len(text) < LARGE:
        new = _prepared(doc_id, text, content_hash, metadata)
    else:
        from kb.ingest.read_ahead import made_elsewhere  # here: it loads all that reads sources

        new = made_elsewhere(_prepared, doc_id, text, content_hash, metadata)
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
    """The document without its text, cut as Markdown, or why there is none."""

    def prepared() -> NewDocument:
        parsed = parse(text, "content.md")
        blocks = tuple(  # front matter is text too
            replace(block, kind="paragraph") if block.kind == "front_matter" else block
            for block in parsed.blocks
        )
        parsed = replace(parsed, title=_title(parsed, text), front_matter={}, blocks=blocks)
        chunks = chunk(text, parsed, load_tokenizer())
        return NewDocument(doc_id, "", content_hash, parsed, chunks, metadata=metadata)

    try:
        return within_budget(text, prepared)
    except DocumentTooComplex as error:
        return error


def _title(parsed: ParsedDocument, text: str) -> str:
    """The first heading or line. The id would be found by words that the text does not hold."""
    first = next((section.heading for section in parsed.sections if section.heading), "")
    line = first or next(line for line in text.split("\n") if line.strip())
    words = " ".join(line.split())
    start = words[:MAXIMUM_TITLE]
    if len(words) <= MAXIMUM_TITLE or is_unspaced(words[MAXIMUM_TITLE]):
        return start
    return start.rpartition(" ")[0]
