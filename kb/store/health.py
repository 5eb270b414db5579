"""Whether a file is sound. Every command has a cheap look at it; `kb doctor` looks at samples of a
large file, and at everything with `--full`.

Sources are never repaired by guessing: passages, vectors and indexes are made anew from the texts,
rows that belong to nothing go, and a damaged page is reported.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator

from kb.errors import BusyError, DamagedFileError, FileError
from kb.models.embedder import BUILDS
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.store.collections import all_collections
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.vectors import (
    current_model,
    delete_unused_vectors,
    has_vectors_without_model,
    rebuild_all_vectors,
    use_vectors_of_model,
)
from kb.store.vocabulary import count_wrong_endings, rebuild_endings
from kb.store.write_ahead_log import log_finding
from kb.text.counted import counted

REBUILD = "make it anew from the texts: `kb doctor --fix`"
WHOLE_BYTES = 20_000_000  # of a file that is looked through in a second
SAMPLES = 64  # passages of a larger one
_MESSAGES = 20


def quick(connection: Connection) -> list[Finding]:
    """What keeps the file from answering as it should; a few look-ups, no table is read."""
    if has_vectors_without_model(connection):
        message = (
            "the row of the model that made the file's vectors is gone: searches use keywords alone"
        )
        return [Finding("model", BROKEN, message, "`kb reembed` makes the vectors anew")]
    model = current_model(connection)
    if model is None or model["sha256"] in BUILDS.get(model["name"], (model["sha256"],)):
        return []
    message = f"the file's vectors come from another build of the model {model['name']}"
    remedy = f"`kb reembed --model {model['name']}` makes them anew"
    return [Finding("model", BROKEN, message, remedy)]


def require_sound(database: Database, failure: Exception) -> None:
    """After an unexpected failure, raise DamagedFileError if the file is to blame."""
    with database.read(is_long=True) as connection:
        faults = connection.integrity(1) or [
            f"rows of {child} belong to no row of {parent}"
            for child, parent in connection.broken_references()
        ]
        faults = faults or _unreadable(connection)
    if isinstance(failure, json.JSONDecodeError | UnicodeDecodeError):
        faults.append(f"a text in it cannot be read: {failure}")  # what comes in is checked before
    if faults:
        raise DamagedFileError(
            f"{database.path} is damaged ({faults[0]}): `kb doctor` says what is wrong, `kb doctor "
            "--fix` makes anew what it can; else restore a copy"
        )


def sampled(database: Database) -> Iterator[Finding]:
    """Check the counts of a large file, and some of its passages with all that belongs to them."""
    started = time.monotonic()
    with database.read() as connection:
        ((documents, passages, indexed),) = connection.tuples("quick_counts")
        ids = [row["collection_id"] for row in all_collections(connection)]
        number = max(SAMPLES // max(len(ids), 1), 1)
        rows = connection.tuples("sampled_chunks", collection_ids=ids, samples=number)
        lost = sum(body is None for _, body, _ in rows)
        misfits = sum(not fits for *_, fits in rows)
        unindexed = 0
        for chunk_id, body, _ in rows:
            words = (word for _, _, word in connection.tokenize(body or ""))
            if longest := max(words, key=len, default=""):
                match = f'"{longest}"'
                unindexed += not connection.value("is_indexed", match=match, chunk_id=chunk_id)
    looked = f"of {counted(len(rows), 'passage')}"
    if lost:
        yield _broken("rows", f"{looked} {lost} belong to nothing")
    if unindexed or indexed != passages:
        message = f"it does not say what the texts say: {unindexed} {looked}"
        if indexed != passages:
            message = f"it holds {counted(indexed, 'passage')}, the file {passages:,}"
        yield _broken("keyword index", message)
    if misfits:
        yield _broken("vectors", f"{looked} {misfits} have a vector or index that does not fit")
    yield _log(database)
    yield Finding(
        "file",
        SOUND,
        f"a quick look, {time.monotonic() - started:.1f} s: {counted(documents, 'document')} and "
        f"{counted(passages, 'passage')} counted, {len(rows)} looked at",
        "`kb doctor --full` looks through all of it",
    )


def _broken(check: str, message: str) -> Finding:
    if check == "rows":
        return Finding(check, BROKEN, message, "delete them: --fix", "orphans")
    return Finding(check, BROKEN, message, REBUILD, check)


def thorough(database: Database) -> Iterator[Finding]:
    """Every check of the file itself. Reads all of it, and holds the write lock for a while."""
    started = time.monotonic()
    pages = _pages(database)
    yield pages
    if pages.state == BROKEN:
        return  # what other checks would say of damaged pages means nothing
    yield from _contents(database)
    yield _keyword_index(database)
    yield from _vectors(database)
    yield _log(database)
    seconds = time.monotonic() - started
    with database.read(is_long=True) as connection:
        (counts,) = connection.rows("health_counts")
    looked = ", ".join(counted(counts[f"{what}s"], what) for what in ("document", "passage"))
    looked += f" and {counted(counts['vectors'], 'vector')} looked through in {seconds:.1f} s"
    yield Finding("file", SOUND, looked)
    if waiting := counts["waiting"]:
        message = f"{counted(waiting, 'passage has', 'passages have')} no vector yet: found by "
        remedy = "`kb sync` makes the vectors"
        yield Finding("vectors", HINT, f"{message}keywords alone", remedy, "embed")
    if unused := counts["unused"]:
        message = f"{counted(unused, 'vector belongs', 'vectors belong')} to no passage: an "
        remedy, what = "delete them: `kb doctor --fix`", "unused vectors"
        yield Finding("vectors", HINT, f"{message}interrupted sync leaves such", remedy, what)


def _pages(database: Database) -> Finding:
    with database.read(is_long=True) as connection:
        messages = connection.integrity(_MESSAGES)
    if not messages:
        return Finding("pages", SOUND, "every page and row is intact")
    if all("index" in message for message in messages):
        message = f"an index is damaged: {messages[0]}"
        return Finding("pages", BROKEN, message, REBUILD, "table indexes")
    remedy = (
        "restore a copy; without one `kb copy` saves what can be read, or delete the file and "
        "`kb add` the folders again"
    )
    return Finding("pages", BROKEN, f"the file is damaged: {'; '.join(messages[:3])}", remedy)


def _contents(database: Database) -> Iterator[Finding]:
    with database.read(is_long=True) as connection:
        orphans = Counter(connection.broken_references())
        orphans["report_signatures", "report_paragraphs"] += connection.count(
            "count_orphan_signatures"
        )
        orphans["word_endings", "vocabulary"] += count_wrong_endings(connection)
        unreadable = _unreadable(connection)
    orphans.pop(("vectors", "models"), None)  # `quick` reports them: the way out is another one
    counts = ", ".join(
        f"{n} of {child} (no {parent})" for (child, parent), n in orphans.items() if n
    )
    if counts:
        yield _broken("rows", f"rows that belong to nothing: {counts}")
    else:
        yield Finding("rows", SOUND, "every row belongs to something")
    if unreadable:
        remedy = "restore a copy; or `kb remove` the collection of that row and add it again"
        yield Finding("values", BROKEN, "; ".join(unreadable), remedy)


def _unreadable(connection: Connection) -> list[str]:
    """Values that another program, or damage that no page shows, has put into typed columns."""
    return [f"{name} holds what kb never writes there" for name in connection.column("unreadable")]


def _keyword_index(database: Database) -> Finding:
    check = "keyword index"
    if database.read_only:
        return Finding(check, HINT, "not compared with the texts: the file cannot be written")
    try:
        with database.write() as connection:
            connection.run("check_keyword_index")
    except DamagedFileError:
        return _broken(check, "it does not say what the texts say")
    except BusyError as error:
        return Finding(check, HINT, f"not looked at: {error.message}")
    return Finding(check, SOUND, "it matches the texts")


def _vectors(database: Database) -> Iterator[Finding]:
    with database.read(is_long=True) as connection:
        model = current_model(connection)
        if model is None:
            return
        (counts,) = connection.tuples("wrong_vectors", width=model["width"])
    faults = (counted(count, *form) for count, form in zip(counts, _FAULTS, strict=True) if count)
    if wrong := "; ".join(faults):
        yield _broken("vectors", wrong)
    else:
        message = f"all are {model['width']} wide, and the vector index matches"
        yield Finding("vectors", SOUND, message)


# What `wrong_vectors` counts: one, several.
_FAULTS = (
    ("vector is not as wide as its model says", "vectors are not as wide as their model says"),
    ("passage has the vector of another model", "passages have the vector of another model"),
    (
        "part of the vector index does not match the vectors",
        "parts of the vector index do not match the vectors",
    ),
    ("document has no fitting mean vector", "documents have no fitting mean vector"),
)


def _log(database: Database) -> Finding:
    if database.is_replicated:
        return Finding("log", SOUND, "Litestream alone merges it: `kb copy` writes a whole file")
    message = "the file alone is complete: nothing waits in a log"
    return log_finding(database) or Finding("log", SOUND, message)


def repair(database: Database, what: str) -> None:
    """Mend what `thorough` has found. Raises FileError if the file cannot be written."""
    if database.read_only:
        raise FileError(f"{database.path} cannot be written: copy it to a writable folder first")
    with database.write() as connection:
        REPAIRS[what](connection)


def _repair_vectors(connection: Connection) -> None:
    connection.run("forget_misshapen_vectors")
    connection.run("delete_misshapen_vectors")
    model = current_model(connection)
    if model is not None:
        ((_, others, *_),) = connection.tuples("wrong_vectors", width=model["width"])
        if others:
            use_vectors_of_model(connection, model["model_id"])
    rebuild_all_vectors(connection)


def _repair_orphans(connection: Connection) -> None:
    connection.run("delete_orphans")
    rebuild_endings(connection)
    connection.run("rebuild_keyword_index")
    _repair_vectors(connection)


REPAIRS: dict[str, Callable[[Connection], object]] = {
    "table indexes": lambda connection: connection.run("rebuild_indexes"),
    "keyword index": lambda connection: connection.run("rebuild_keyword_index"),
    "orphans": _repair_orphans,
    "unused vectors": delete_unused_vectors,
    "vectors": _repair_vectors,
}
