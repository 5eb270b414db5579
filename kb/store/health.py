"""Whether a file is sound. Every command has a cheap look at it; `kb doctor` looks at everything.

What is source is never repaired by guessing: passages, vectors and indexes are made anew from the
texts, rows that belong to nothing go, and a damaged page is told.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kb.errors import BusyError, DamagedFileError, FileError
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.embeddings import (
    current_model,
    use_vectors_of_model,
)
from kb.store.findings import BROKEN, HINT, SOUND, Finding
from kb.store.vectors import rebuild_all_vectors
from kb.store.vocabulary import count_wrong_endings, rebuild_endings
from kb.store.waiting_log import waiting_log
from kb.text.counted import counted

REBUILD = "make it anew from the texts: `kb doctor --fix`"
_MESSAGES = 20
# In the order in which rows belong to each other.
_ORPHANS = (
    "delete_orphan_documents",
    "delete_orphan_sections",
    "delete_orphan_chunks",
    "delete_orphan_citations",
    "forget_orphan_targets",
    "forget_orphan_vectors",
    "delete_orphan_document_vectors",
    "delete_orphan_keys",
    "delete_orphan_paragraphs",
    "delete_orphan_signatures",
    "delete_orphan_events",
)


def require_sound(database: Database, failure: Exception) -> None:
    """After a failure that nobody foresaw: whether the file is to blame.

    Raises:
        DamagedFileError: it is.
    """
    with database.read() as connection:
        found = connection.integrity(1) or [
            f"rows of {child} belong to no row of {parent}"
            for child, parent in connection.broken_references()
        ]
        found = found or _unreadable(connection)
    if isinstance(failure, json.JSONDecodeError | UnicodeDecodeError):
        found.append(f"a text in it cannot be read: {failure}")  # what comes in is checked before
    if found:
        raise DamagedFileError(
            f"{database.path} is damaged ({found[0]}): `kb doctor` says what is wrong, `kb doctor "
            "--fix` makes anew what it can; else restore a copy"
        )


def thorough(database: Database) -> Iterator[Finding]:
    """Every check of the file itself. Reads all of it, and holds the write lock for a while."""
    started = time.monotonic()
    pages = list(_pages(database))
    yield from pages
    if any(finding.state == BROKEN for finding in pages):
        return  # what other checks would say of damaged pages means nothing
    yield from _references(database)
    yield from _values(database)
    yield from _keyword_index(database)
    yield from _vectors(database)
    yield from _log(database)
    seconds = time.monotonic() - started
    with database.read() as connection:
        counts = connection.row("health_counts") or {}
    yield Finding(
        "file",
        SOUND,
        f"{counted(counts['documents'], 'document')}, {counted(counts['chunks'], 'passage')} and "
        f"{counted(counts['vectors'], 'vector')} looked through in {seconds:.1f} s",
    )
    if counts["waiting"]:
        yield Finding(
            "vectors",
            HINT,
            f"{counted(counts['waiting'], 'passage has', 'passages have')} no vector yet: found by "
            "keywords alone",
            "`kb sync` makes the vectors",
            "embed",
        )


def _pages(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        messages = connection.integrity(_MESSAGES)
    if not messages:
        yield Finding("pages", SOUND, "every page and row is intact")
        return
    if all("index" in message for message in messages):
        yield Finding(
            "pages", BROKEN, f"an index is damaged: {messages[0]}", REBUILD, "table indexes"
        )
        return
    yield Finding(
        "pages",
        BROKEN,
        f"the file is damaged: {'; '.join(messages[:3])}",
        "restore a copy; without one `kb copy` saves what can be read, or delete the file and "
        "`kb add` the folders again",
    )


def _references(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        broken = Counter(connection.broken_references())
        broken[("report_signatures", "report_paragraphs")] += connection.value(
            "count_orphan_signatures"
        )
        broken[("word_endings", "vocabulary")] += count_wrong_endings(connection)
    # Said by `quick`: the way out is another one.
    broken.pop(("vectors", "models"), None)
    some = {pair: count for pair, count in broken.items() if count}
    if not some:
        yield Finding("rows", SOUND, "every row belongs to something")
        return
    shown = ", ".join(
        f"{count} of {child} (no {parent})" for (child, parent), count in some.items()
    )
    yield Finding(
        "rows", BROKEN, f"rows that belong to nothing: {shown}", "delete them: --fix", "orphans"
    )


def _values(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        found = _unreadable(connection)
    if found:
        yield Finding(
            "values",
            BROKEN,
            "; ".join(found),
            "restore a copy; or `kb remove` the collection of that row and add it again",
        )


def _unreadable(connection: Connection) -> list[str]:
    """What another program, or damage that no page shows, has put into columns of a form."""
    places = connection.tuples("unreadable_values")
    return [f"{place} holds what kb never writes there" for (place,) in places]


def _keyword_index(database: Database) -> Iterator[Finding]:
    if database.read_only:
        yield Finding(
            "keyword index", HINT, "not compared with the texts: the file cannot be written"
        )
        return
    try:
        with database.write() as connection:
            connection.run("check_keyword_index")
    except DamagedFileError:
        yield Finding(
            "keyword index", BROKEN, "it does not say what the texts say", REBUILD, "keyword index"
        )
    except BusyError as error:
        yield Finding("keyword index", HINT, f"not looked at: {error.message}")
    else:
        yield Finding("keyword index", SOUND, "it matches the texts")


def _vectors(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        model = current_model(connection)
        if model is None:
            return
        width = model["width"]
        counts: dict[tuple[str, str], Any] = {
            (
                "vector is not as wide as its model says",
                "vectors are not as wide as their model says",
            ): connection.value("count_misshapen_vectors"),
            (
                "passage has the vector of another model",
                "passages have the vector of another model",
            ): connection.value("count_chunks_of_other_models"),
            (
                "part of the vector index does not match the vectors",
                "parts of the vector index do not match the vectors",
            ): connection.value("count_wrong_slabs", width=width),
            (
                "document has no fitting mean vector",
                "documents have no fitting mean vector",
            ): connection.value("count_wrong_document_vectors", width=width),
        }
    wrong = [counted(count, *what) for what, count in counts.items() if count]
    if wrong:
        yield Finding("vectors", BROKEN, "; ".join(wrong), REBUILD, "vectors")
    else:
        yield Finding("vectors", SOUND, f"all are {width} wide, and the vector index matches")


def _log(database: Database) -> Iterator[Finding]:
    if database.is_replicated:
        yield Finding("log", SOUND, "Litestream alone merges it: `kb copy` writes a whole file")
    elif (waiting := waiting_log(database)) is None:
        yield Finding("log", SOUND, "the file alone is complete: nothing waits in a log")
    else:
        yield Finding("log", HINT, waiting.sentence(with_commands=True), waiting.remedy)


def repair(database: Database, what: str) -> None:
    """Mend what `thorough` has found.

    Raises:
        FileError: the file cannot be written.
    """
    if database.read_only:
        raise FileError(f"{database.path} cannot be written: copy it to a writable folder first")
    with database.write() as connection:
        REPAIRS[what](connection)


def _repair_table_indexes(connection: Connection) -> None:
    connection.run("rebuild_indexes")


def _repair_keyword_index(connection: Connection) -> None:
    connection.run("rebuild_keyword_index")


def _repair_vectors(connection: Connection) -> None:
    connection.run("forget_misshapen_vectors")
    connection.run("delete_misshapen_vectors")
    model = current_model(connection)
    if model is not None and connection.value("count_chunks_of_other_models"):
        use_vectors_of_model(connection, model["model_id"])
    rebuild_all_vectors(connection)


def _repair_orphans(connection: Connection) -> None:
    for statement in _ORPHANS:
        connection.run(statement)
    rebuild_endings(connection)
    _repair_keyword_index(connection)
    _repair_vectors(connection)


REPAIRS = {
    "table indexes": _repair_table_indexes,
    "keyword index": _repair_keyword_index,
    "orphans": _repair_orphans,
    "vectors": _repair_vectors,
}
