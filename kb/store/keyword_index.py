"""The keyword index where a text is taken back: its terms and what it holds of it."""

from __future__ import annotations

from collections.abc import Iterator

from kb.store.connection import Connection


def merge_segments(connection: Connection) -> None:
    """Merge the index into one segment, which drops the terms of what was deleted."""
    connection.run("merge_keyword_segments")


def passages_of_document(connection: Connection, document_id: int) -> list[tuple[str, ...]]:
    """All texts that the keyword index takes of a document's passages."""
    return connection.tuples("passages_of_document", document_id=document_id)


def passages_with(connection: Connection, match: str) -> Iterator[tuple[str, ...]]:
    """The texts of passages that match, one by one; of many the first."""
    return connection.iterate("passages_with", query=match)
