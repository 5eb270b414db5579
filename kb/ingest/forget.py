"""Take a discovery or a secret file back, so that nothing of it stays in the knowledge base.

Deleting rows is not enough. A full-text index keeps the terms of what was deleted until its
segments are merged; the vocabulary keeps words as they were written; the log of sessions keeps
questions; and SQLite leaves deleted bytes where they were until the room is used again, older
wordings of the text among them. So all of these are cleaned and the file is written anew.
FTS5's own `secure-delete` is left alone: SQLite before 3.42 cannot read an index that used it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kb.errors import DiscoveryNotFound, FileError, UsageError
from kb.search.query import quote
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.store.discoveries import stored_discoveries
from kb.store.documents import delete_document
from kb.store.embeddings import delete_if_unused, vectors_of_document
from kb.store.keyword_index import merge_segments, passages_of_document, passages_with
from kb.store.session_history import all_details, delete_events
from kb.store.vocabulary import forget_words

__all__ = ["Forgotten", "erase_documents", "find_discovery", "forget_discovery", "write_anew"]

SHORTEST_ID = 4  # characters of an id's beginning that are enough
MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of a discovery that was taken back."""

    discovery_id: str
    type: str
    module: str
    notice: str = ""  # why a trace may be left, and what to do then


def forget_discovery(database: Database, wanted: str) -> Forgotten:
    """Delete a discovery with every trace of it in the file.

    Args:
        wanted: its id, or enough of the id's beginning to tell it from others.

    Raises:
        DiscoveryNotFound, UsageError: as `find_discovery`.
    """
    with database.write() as connection:
        row = find_discovery(connection, wanted)
        metadata = json.loads(row["metadata"])
        said = [row["id"], *(str(value) for value in metadata.values())]
        erase_documents(connection, [row["document_id"]], said, [row["id"]])
    notice = write_anew(database)
    return Forgotten(row["id"], metadata["type"], metadata.get("module", ""), notice)


def erase_documents(
    connection: Connection,
    document_ids: Sequence[int],
    said: Sequence[str] = (),
    events: Sequence[str] = (),
) -> None:
    """Delete documents, their words, and the questions with those; `write_anew` does the rest.

    Args:
        said: further texts whose words go.
        events: what goes from the log of sessions, word for word.
    """
    said = list(said)
    for document_id in document_ids:
        said += _texts_of(connection, document_id)
        vectors = vectors_of_document(connection, document_id)
        delete_document(connection, document_id)
        delete_if_unused(connection, vectors)
    merge_segments(connection)
    _forget_words(connection, said, events)


def write_anew(database: Database) -> str:
    """Write the file without its free pages; what is to be said if that failed."""
    try:
        if database.compact():
            return ""
        merges = "Litestream has yet to merge its log, and the copy elsewhere keeps its history"
        reason = merges if database.is_replicated else "another program reads it"
    except FileError as error:  # the disk is full, or another process writes
        reason = error.message
    return (
        f"it is found no more, but the file could not be written anew yet ({reason}), so its text "
        "may still lie in unused parts of it: `kb copy` writes a file without them"
    )


def find_discovery(connection: Connection, wanted: str) -> Row:
    """The row of a discovery by its id, or enough of its beginning.

    Raises:
        DiscoveryNotFound: none has this id.
        UsageError: several have ids that begin so.
    """
    beginning = wanted.strip().lower()
    rows = stored_discoveries(connection)
    exact = [row for row in rows if row["id"].lower() == beginning]
    near = [row for row in rows if row["id"].lower().startswith(beginning)]
    found = exact or (near if len(beginning) >= SHORTEST_ID else [])
    if not found:
        raise DiscoveryNotFound(
            f'There is no discovery with the id "{wanted}": `kb recall` shows them with their ids'
        )
    if len(found) > 1:
        ids = ", ".join(row["id"] for row in found[:MOST_SHOWN])
        raise UsageError(f'{len(found)} discoveries have ids that begin with "{wanted}": {ids}')
    return found[0]


def _forget_words(connection: Connection, said: Sequence[str], events: Sequence[str]) -> None:
    """Take words that no document says any more out of the vocabulary, and questions with them."""
    words = set().union(*(_folded(connection, text) for text in said))
    gone = {word for word in words if not _is_written(connection, word)}
    forget_words(connection, gone)
    event_ids = [
        event_id
        for event_id, detail in all_details(connection)
        if detail in events or gone & _folded(connection, detail)
    ]
    delete_events(connection, event_ids)


def _is_written(connection: Connection, word: str) -> bool:
    """Whether any document holds a word as it is, not only another form of it."""
    passages = passages_with(connection, quote(word))
    return any(word in _folded(connection, text) for passage in passages for text in passage)


def _texts_of(connection: Connection, document_id: int) -> list[str]:
    return [text for passage in passages_of_document(connection, document_id) for text in passage]


def _folded(connection: Connection, text: str) -> set[str]:
    return {word for _, _, word in connection.tokenize(text)}
