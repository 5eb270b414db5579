"""The named indexes among the collections."""

from __future__ import annotations

from kb.store.connection import Connection, Row


def find_index_row(connection: Connection, name: str) -> Row | None:
    """A named index with its options as JSON."""
    return connection.row("index_by_name", name=name)


def index_names(connection: Connection) -> list[str]:
    """The names of all indexes, to suggest near ones."""
    return [row[0] for row in connection.tuples("index_names")]
