"""Whether a file and all that is in it are sound: tables, vectors, collections, tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kb.errors import FileError, KbError, SourceError
from kb.formats.convert.formats import INSTALL
from kb.ingest.embed import embed_pending
from kb.ingest.freshness import Freshness, look_at
from kb.ingest.reach import unconfirmed
from kb.ingest.report import Progress, no_progress
from kb.library import environment
from kb.model_in_use import ModelInUse
from kb.models.embedder import BUILDS, Embedder
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.search.rows import copies
from kb.sources.address import is_remote, local
from kb.store.access_tokens import EXPIRED, VALID, count_tokens
from kb.store.collections import all_collections
from kb.store.connection import Row
from kb.store.contents import count_waiting, texts_of_collection
from kb.store.database import Database
from kb.store.health import REPAIRS, WHOLE_BYTES, quick, repair, sampled, thorough
from kb.store.replication.state import finding
from kb.store.vectors import current_model
from kb.text.counted import counted, most_first, some_of
from kb.text.secrets import secrets_in

CHECKS = 6  # of a sound file
MOST_TOLD = 5  # files of a collection that get a finding of their own


def look_at_file(
    path: Path, *, is_offered: bool = False, full: bool = True, progress: Progress = no_progress
) -> Iterator[Finding]:
    """Check the file and all that is in it; that it cannot be opened is a finding too.

    Args:
        is_offered: whether a server offers it to other machines.
        full: read all of a large file, not only samples.
    """
    if not path.exists():
        yield Finding("file", HINT, f"there is no knowledge base at {path}", "`kb add FOLDER`")
        yield from environment.models(None)
        return
    try:
        with Database(path, create=False) as database:
            yield from look_at_open(database, is_offered=is_offered, full=full, progress=progress)
    except FileError as error:
        yield Finding("file", BROKEN, error.message)
    # From a damaged value: a text that is NULL, a count of 0, a name that is gone.
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        yield Finding(
            "file",
            BROKEN,
            f"a value in the file cannot be read: {type(error).__name__}: {error}",
            "restore a copy, or delete the file and `kb add` the folders again",
        )


def collection_names(path: Path) -> set[str]:
    """The collections of a file; none if it cannot be opened."""
    try:
        with Database(path, create=False) as database, database.read() as connection:
            return {row["name"] for row in all_collections(connection)}
    except KbError:
        return set()


def mend(
    path: Path, make_embedder: Callable[[str], Embedder], progress: Progress = no_progress
) -> Iterator[str]:
    """Mend what is broken and can be rebuilt without loss; yields what was mended. Raises KbError
    if the file cannot be opened or written, or the model cannot be used."""
    with Database(path, create=False) as database:
        repairs = dict.fromkeys(f.repair for f in thorough(database) if f.repair in REPAIRS)
        for what in repairs:
            repair(database, what)
            yield what
        model = ModelInUse(database, make_embedder=make_embedder)
        with database.read() as connection:
            waiting = count_waiting(connection)
        if waiting and not database.read_only:
            done = embed_pending(model, progress=progress)
            yield f"{counted(done.embedded + done.reused, 'passage')} got a vector"


def look_at_open(
    database: Database, *, is_offered: bool, full: bool, progress: Progress
) -> Iterator[Finding]:
    """As `look_at_file`, for an open file."""
    with database.read() as connection:
        full = full or connection.size()[0] < WHOLE_BYTES
        problems = quick(connection, BUILDS)
        model = current_model(connection)
        collections = all_collections(connection)
    progress("checks", 0, CHECKS)
    for number, result in enumerate(thorough(database) if full else sampled(database), 1):
        progress("checks", min(number, CHECKS), CHECKS)
        yield result
    yield from problems
    if model is not None and not problems:
        yield Finding("model", SOUND, f"{model['name']}, {model['width']} dimensions")
    if (replication := finding(database.path)) is not None:
        yield replication
    yield from environment.models(model["name"] if model else None)
    yield from environment.disk(database.path)
    for collection in collections:
        if collection["source"]:
            yield from _collection(database, collection)
    if full:
        yield from _copies(database)
        yield from _secrets(database, collections, progress)
    yield from _access_tokens(database, is_offered)


def _collection(database: Database, collection: Row) -> Iterator[Finding]:
    name, source = collection["name"], collection["source"]
    if is_remote(source):
        return  # remote sources are not fetched for a check
    if unconfirmed(database, [collection]):
        yield Finding(
            "collections",
            HINT,
            f"{name}: not compared with {source}, which nobody has said that this file may read",
            f"`kb trust {name}` says so",
        )
        return
    try:
        freshness = look_at(database, collection)
    except SourceError as error:
        is_gone = not local(source).exists()
        why = f"its source {source} is not on this machine" if is_gone else error.message
        yield Finding(
            "collections",
            HINT,
            f"{name}: {why}; what is stored can be searched",
            f"bring it back and `kb sync {name}`, or say where it is now with "
            f"`kb move {name} FOLDER`, or `kb remove {name}`",
        )
        return
    if collection["synced_at"] is None:
        yield Finding(
            "collections", HINT, f"{name}: no sync of it has ended yet", f"`kb sync {name}`"
        )
    elif freshness.is_fresh:
        yield Finding("collections", SOUND, f"{name}: as in {source}")
    else:
        yield Finding("collections", HINT, f"{name}: {_distance(freshness)}", f"`kb sync {name}`")
    for path, reason in freshness.failed[:MOST_TOLD]:
        shown = f"{path}: {reason}" if path else reason
        yield Finding(
            "skipped files", HINT, f"{name}: {shown}", "mend it, or leave it out with --exclude"
        )
    if len(freshness.failed) > MOST_TOLD:
        yield Finding(
            "skipped files",
            HINT,
            f"{name}: {counted(len(freshness.failed) - MOST_TOLD, 'more file')} cannot be stored",
            f"`kb sync {name}` names them all",
        )
    if freshness.unavailable:
        left_out = ", ".join(f"{count} {name}" for name, count in most_first(freshness.unavailable))
        yield Finding("skipped files", HINT, f"{name}: left out: {left_out}", f"`{INSTALL}`")
    if freshness.withheld:
        yield Finding(
            "skipped files", SOUND, f"{name}: never stored: {some_of(freshness.withheld)}"
        )


def _distance(freshness: Freshness) -> str:
    parts = [
        f"{len(paths)} {word} ({some_of(paths)})"
        for paths, word in (
            (freshness.new, "new"),
            (freshness.changed, "changed"),
            (freshness.gone, "gone"),
        )
        if paths
    ]
    return f"out of date: {', '.join(parts)}"


def _secrets(
    database: Database, collections: Sequence[Row], progress: Progress
) -> Iterator[Finding]:
    """What looks like a secret in the stored texts, without showing it."""
    places: list[str] = []
    kinds: Counter[str] = Counter()
    for number, collection in enumerate(collections):
        progress("secrets", number, len(collections))
        with database.read() as connection:
            texts = texts_of_collection(connection, collection["collection_id"])
        for path, text in texts:
            for secret in secrets_in(text):
                places.append(f"{collection['name']}/{path}:{secret.line} ({secret.kind})")
                kinds[secret.kind] += 1
    if places:
        yield Finding(
            "secrets",
            HINT,
            f"{counted(len(places), 'place looks like a secret', 'places look like secrets')}: "
            f"{some_of(places)}",
            "if one is real: change it at its owner's, take it out of the document, `kb sync`",
        )
    else:
        yield Finding("secrets", SOUND, "no stored text holds what looks like one")


def _copies(database: Database) -> Iterator[Finding]:
    """Documents stored more than once, of which a search shows only the best."""
    with database.read() as connection:
        groups = [" = ".join(group) for group in copies(connection)]
    if groups:
        yield Finding(
            "copies",
            HINT,
            f"{counted(len(groups), 'document')} with copies: {some_of(groups, MOST_TOLD)}",
            "searches show one of each; to keep one alone, delete the others, then `kb sync`",
        )


def _access_tokens(database: Database, is_offered: bool) -> Iterator[Finding]:
    with database.read() as connection:
        counts = count_tokens(connection)
    if is_offered and not counts[VALID]:
        yield Finding(
            "tokens",
            HINT,
            "a server offers this file to other machines, and all who use it share one token, that "
            "of the one who runs it",
            "make one for each person, which can be revoked alone: `kb token add NAME`",
        )
    elif counts[EXPIRED]:
        yield Finding(
            "tokens",
            HINT,
            f"{counts[VALID]} valid, {counts[EXPIRED]} expired, which open nothing",
            "make their owners new ones with `kb token add NAME`, or `kb token forget`",
        )
    elif counts:
        yield Finding("tokens", SOUND, f"{counts[VALID]} valid")
