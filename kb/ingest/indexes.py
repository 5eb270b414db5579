"""Named indexes: collections that are filled by tool calls, in the file or in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kb.errors import IndexExists, IndexNotFound, UnknownBackend
from kb.open_file import OpenFile
from kb.results.memory import CreatedIndex
from kb.search.bm25 import IndexOptions
from kb.settings import DEFAULT_INDEX
from kb.store.collections import (
    all_collections,
    find_collection_id,
    find_index_row,
    index_names,
    insert_collection,
)
from kb.store.database import Database
from kb.text.nearest import nearest

BACKENDS = ("sqlite", "memory")


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
    """Make an index.

    Raises:
        UnknownBackend: neither "sqlite" nor "memory".
        IndexExists: the name is taken, by an index or by another collection.
    """
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
