"""Take a discovery or a secret file back, so that no trace of it stays in the knowledge base.

Deleting rows is not enough. A full-text index keeps deleted terms until its segments are merged,
the vocabulary keeps words as they were written, the log of sessions keeps questions, and SQLite
leaves deleted bytes where they were. So all of these are cleaned and the file is written anew.
FTS5's own `secure-delete` is left alone: SQLite before 3.42 cannot read an index that used it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kb.errors import DiscoveryNotFound, FileError, UsageError
from kb.results.memory import ForgottenDiscovery
from kb.search.query import quote
from kb.store.connection import Connection, Row
from kb.store.contents import merge_segments, passages_of_document, passages_with
from kb.store.database import Database
from kb.store.discoveries import set_metadata, stored_discoveries
from kb.store.documents import delete_document
from kb.store.sessions import all_details, delete_events
from kb.store.vectors import delete_if_unused, vectors_of_document
from kb.store.vocabulary import forget_words

SHORTEST_ID = 4  # characters of an id's beginning that are enough
MAX_SHOWN = 5


def forget_discovery(database: Database, id_start: str) -> ForgottenDiscovery:
    """Delete a discovery with every trace of it in the file. Arguments and errors as
    `find_discovery`."""
    with database.write() as connection:
        row = find_discovery(connection, id_start)
        metadata = json.loads(row["metadata"])
        texts = [row["id"], *map(str, metadata.values())]
        for other in stored_discoveries(connection):  # what it corrected is in force again
            facts = json.loads(other["metadata"])
            if facts.get("superseded_by") == row["id"]:
                del facts["superseded_by"]
                set_metadata(connection, other["document_id"], facts)
        erase_documents(connection, [row["document_id"]], texts, [row["id"]])
    return ForgottenDiscovery(
        id=row["id"],
        type=metadata["type"],
        module=metadata.get("module"),
        notice=write_anew(database) or None,
    )


def erase_documents(
    connection: Connection,
    document_ids: Sequence[int],
    more_texts: Sequence[str] = (),
    events: Sequence[str] = (),
) -> None:
    """Delete documents, their words, and the questions with those; `write_anew` does the rest.

    Args:
        more_texts: further texts whose words go.
        events: what goes from the log of sessions, word for word.
    """
    texts = list(more_texts)
    for document_id in document_ids:
        for passage in passages_of_document(connection, document_id):
            texts += passage
        vectors = vectors_of_document(connection, document_id)
        delete_document(connection, document_id)
        delete_if_unused(connection, vectors)
    merge_segments(connection)
    words = set().union(*(_folded(connection, text) for text in texts))
    # Of those that no document holds as they are, but at most in another form.
    gone = {
        word
        for word in words
        if not any(
            word in _folded(connection, text)
            for passage in passages_with(connection, quote(word))
            for text in passage
        )
    }
    forget_words(connection, gone)
    event_ids = [
        event_id
        for event_id, detail in all_details(connection)
        if detail in events or gone & _folded(connection, detail)
    ]
    delete_events(connection, event_ids)


def write_anew(database: Database) -> str:
    """Write the file without its free pages; a notice if that failed, else ""."""
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


def find_discovery(connection: Connection, id_start: str) -> Row:
    """The row of a discovery by its id, or enough of its beginning.

    Raises:
        DiscoveryNotFound: none has this id.
        UsageError: several have ids that begin so.
    """
    beginning = id_start.strip().lower()
    rows = stored_discoveries(connection)
    exact = [row for row in rows if row["id"].lower() == beginning]
    near = [row for row in rows if row["id"].lower().startswith(beginning)]
    matches = exact or (near if len(beginning) >= SHORTEST_ID else [])
    if not matches:
        raise DiscoveryNotFound(
            f'There is no discovery with the id "{id_start}": `kb recall` shows them with their ids'
        )
    if len(matches) > 1:
        ids = ", ".join(row["id"] for row in matches[:MAX_SHOWN])
        raise UsageError(f'{len(matches)} discoveries have ids that begin with "{id_start}": {ids}')
    return matches[0]


def _folded(connection: Connection, text: str) -> set[str]:
    return {word for _, _, word in connection.tokenize(text)}
