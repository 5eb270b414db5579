"""Names in a file that is not open, for shell completion; none if it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kb.errors import KbError
from kb.store.collections import collection_names_from
from kb.store.connection import Connection
from kb.store.contents import document_paths_from
from kb.store.database import Database


def collection_names(file: Path, prefix: str = "", limit: int = -1) -> list[str]:
    """Collections whose names begin with a prefix; -1 for all."""
    return _read(file, lambda read: collection_names_from(read, prefix, limit))


def document_ids(file: Path, prefix: str, collection: str, limit: int) -> list[str]:
    """Documents, of one collection if it is named, whose ids begin with a prefix."""
    return _read(
        file, lambda connection: document_paths_from(connection, prefix, collection, limit)
    )


def _read(file: Path, names: Callable[[Connection], list[str]]) -> list[str]:
    try:
        with Database(file, create=False) as database, database.read() as connection:
            return names(connection)
    except KbError:
        return []
