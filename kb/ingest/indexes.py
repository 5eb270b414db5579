"""Named indexes: collections that are filled by tool calls, in the file or in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kb.errors import IndexExists, IndexNotFound, UnknownBackend
from kb.knowledge_base import KnowledgeBase
from kb.search.bm25 import IndexOptions
from kb.store.collections import all_collections, find_collection_id, insert_collection
from kb.store.database import Database
from kb.store.indexes import find_index_row, index_names
from kb.store.names import DEFAULT_INDEX
from kb.text.nearest import nearest

BACKENDS = ("sqlite", "memory")
BLANK_CONTENT = "Content must be a non-empty string"


@dataclass(frozen=True, slots=True)
class Index:
    """Where an index is kept, and how it takes words."""

    name: str
    database: Database
    collection_id: int
    options: IndexOptions


def find_index(knowledge: KnowledgeBase, name: str) -> Index | None:
    """An index by its name; None for the default one while nothing is in it.

    Raises:
        IndexNotFound: with near names.
    """
    names: list[str] = []
    for database in knowledge.databases:
        with database.read() as connection:
            if row := find_index_row(connection, name):
                options = IndexOptions.from_json(row["options"])
                return Index(name, database, row["collection_id"], options)
            names += index_names(connection)
    hint = _other_kind(knowledge, name)
    if name == DEFAULT_INDEX and not hint:
        return None
    if hint:
        raise IndexNotFound(f"Index not found: {name}", hint=hint)
    raise IndexNotFound(
        f"Index not found: {name}", near=lambda: nearest(name, [*names, DEFAULT_INDEX])
    )


def create_index(knowledge: KnowledgeBase, name: str, backend: str, options: IndexOptions) -> None:
    """Make an index.

    Raises:
        UnknownBackend: neither "sqlite" nor "memory".
        IndexExists: the name is taken, by an index or by another collection.
    """
    if backend not in BACKENDS:
        raise UnknownBackend(f"Unknown backend: {backend}", backends=list(BACKENDS))
    if hint := _other_kind(knowledge, name):
        raise IndexExists(f"Index already exists: {name}", hint=hint)
    if name == DEFAULT_INDEX:
        raise IndexExists(f"Index already exists: {name}")
    for database in knowledge.databases:
        with database.read() as connection:
            if find_collection_id(connection, name) is not None:
                raise IndexExists(f"Index already exists: {name}")
    target = knowledge.memory if backend == "memory" else knowledge.database
    with target.write() as connection:
        # Another process may have made it since.
        if find_collection_id(connection, name) is not None:
            raise IndexExists(f"Index already exists: {name}")
        insert_collection(connection, name, "index", options=asdict(options))


def _other_kind(knowledge: KnowledgeBase, name: str) -> str:
    """What to do with a name that belongs to a collection of another kind; "" if it does not."""
    with knowledge.database.read() as connection:
        row = next((row for row in all_collections(connection) if row["name"] == name), None)
    if row is None or row["kind"] == "index":
        return ""
    origin = f"comes from {row['source']}" if row["source"] else f"holds {row['kind']}"
    return (
        f'"{name}" is a collection that {origin}, not an index: search it with documents_search, '
        "or make an index of another name with search_create_index"
    )
