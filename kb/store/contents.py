"""What the file holds: its documents by path and by id, their texts and headings."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kb.store.database import Connection


def all_document_ids(connection: Connection) -> list[int]:
    """Every document."""
    return [row[0] for row in connection.tuples("all_document_ids")]


def title_and_text(connection: Connection, document_id: int) -> tuple[str, str] | None:
    """A document as the keyword index holds it; None where it is gone."""
    rows = connection.tuples("indexed_document", document_id=document_id)
    return rows[0] if rows else None


def beginnings_of_documents(connection: Connection, document_ids: Sequence[int]) -> list[str]:
    """The first 2,000 characters of each of these documents."""
    listed = json.dumps(list(document_ids))
    return [row[0] for row in connection.tuples("beginnings_of_documents", document_ids=listed)]
