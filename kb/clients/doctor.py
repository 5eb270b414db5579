"""Whether all is sound: what kb stands on, the file, its collections, the clients that use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kb.clients import environment
from kb.clients.catalog import CLIENTS, Client, Machine, project_file, user_file
from kb.clients.handshake import NoAnswer
from kb.clients.install import installed
from kb.clients.launch import Place, start_once
from kb.errors import FileError, KbError, SourceError
from kb.formats.convert.formats import INSTALL
from kb.ingest.embed import embed_pending
from kb.ingest.freshness import Freshness, look_at
from kb.ingest.progress import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.models.embedder import BUILDS, Embedder
from kb.server.running import running_server
from kb.settings import find_project
from kb.sources.address import is_remote, local
from kb.store.chunks import count_waiting
from kb.store.collections import all_collections
from kb.store.connection import Row
from kb.store.contents import texts_of_collection
from kb.store.database import Database
from kb.store.embeddings import current_model
from kb.store.findings import BROKEN, HINT, SOUND, Finding, quick
from kb.store.health import REPAIRS, repair, thorough
from kb.store.replication.state import finding
from kb.store.tokens import EXPIRED, VALID, count_tokens
from kb.text.counted import counted, most_first, some_of
from kb.text.secrets import secrets_in

MOST_TOLD = 5  # files of a collection that have a finding of their own


def look_at_file(path: Path) -> Iterator[Finding]:
    """The file with all that is in it.

    Whatever keeps it from being opened is a finding too.
    """
    if not path.exists():
        yield Finding("file", HINT, f"there is no knowledge base at {path}", "`kb add FOLDER`")
        yield from environment.models(None)
        return
    try:
        with Database(path, create=False) as database:
            yield from _opened(database)
    except FileError as error:
        yield Finding("file", BROKEN, error.message)
    # Of a value that is not what it was: a text that is NULL, a count of 0, a name that is gone.
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        yield Finding(
            "file",
            BROKEN,
            f"a value in the file cannot be read: {type(error).__name__}: {error}",
            "restore a copy, or delete the file and `kb add` the folders again",
        )


def collection_names(path: Path) -> set[str]:
    """The collections of a file that can be opened."""
    try:
        with Database(path, create=False) as database, database.read() as connection:
            return {row["name"] for row in all_collections(connection)}
    except KbError:
        return set()


def mend(
    path: Path, make_embedder: Callable[[str], Embedder], progress: Progress = no_progress
) -> Iterator[str]:
    """Mend what is broken and can be made anew without losing anything; yields what was.

    Raises:
        KbError: the file cannot be opened or written, or the model cannot be used.
    """
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


def _opened(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        problems = quick(connection, BUILDS)
        model = current_model(connection)
        collections = all_collections(connection)
    yield from thorough(database)
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
    yield from _secrets(database, collections)
    yield from _tokens(database)


def _collection(database: Database, collection: Row) -> Iterator[Finding]:
    name, source = collection["name"], collection["source"]
    if is_remote(source):
        return  # what is elsewhere is not fetched for a look
    try:
        found = look_at(database, collection)
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
    elif found.is_fresh:
        yield Finding("collections", SOUND, f"{name}: as in {source}")
    else:
        yield Finding("collections", HINT, f"{name}: {_distance(found)}", f"`kb sync {name}`")
    for path, reason in found.failed[:MOST_TOLD]:
        shown = f"{path}: {reason}" if path else reason
        yield Finding(
            "skipped files", HINT, f"{name}: {shown}", "mend it, or leave it out with --exclude"
        )
    if len(found.failed) > MOST_TOLD:
        yield Finding(
            "skipped files",
            HINT,
            f"{name}: {counted(len(found.failed) - MOST_TOLD, 'more file')} cannot be stored",
            f"`kb sync {name}` names them all",
        )
    if found.unavailable:
        left_out = ", ".join(f"{count} {name}" for name, count in most_first(found.unavailable))
        yield Finding("skipped files", HINT, f"{name}: left out: {left_out}", f"`{INSTALL}`")
    if found.withheld:
        yield Finding("skipped files", SOUND, f"{name}: never stored: {some_of(found.withheld)}")


def _distance(found: Freshness) -> str:
    """How far a collection is from its folder, in words."""
    parts = [
        f"{len(paths)} {word} ({some_of(paths)})"
        for paths, word in ((found.new, "new"), (found.changed, "changed"), (found.gone, "gone"))
        if paths
    ]
    return f"out of date: {', '.join(parts)}"


def _secrets(database: Database, collections: Sequence[Row]) -> Iterator[Finding]:
    """What looks like a secret in the stored texts, without showing it."""
    found: list[str] = []
    kinds: Counter[str] = Counter()
    for collection in collections:
        with database.read() as connection:
            texts = texts_of_collection(connection, collection["collection_id"])
        for path, text in texts:
            for secret in secrets_in(text):
                found.append(f"{collection['name']}/{path}:{secret.line} ({secret.kind})")
                kinds[secret.kind] += 1
    if found:
        yield Finding(
            "secrets",
            HINT,
            f"{counted(len(found), 'place looks like a secret', 'places look like secrets')}: "
            f"{some_of(found)}",
            "if one is real: change it at its owner's, take it out of the document, `kb sync`",
        )
    else:
        yield Finding("secrets", SOUND, "no stored text holds what looks like one")


def look_at_clients(project: Path) -> Iterator[Finding]:
    """Start the server as each client in whose files it is, and see whether it answers."""
    any_installed = False
    for client in CLIENTS.values():
        for place, path in _files(client, project):
            try:
                entries = installed(client, path)
            except KbError as error:
                yield Finding("clients", HINT, f"{client.title}: {error.message}")
                continue
            for name, entry in entries.items():
                any_installed = True
                yield _answer(client, place, path, name, entry)
    if not any_installed:
        yield Finding("clients", HINT, "no assistant has kb installed", "`kb install CLIENT`")


def _files(client: Client, project: Path) -> Iterator[tuple[Place, Path]]:
    yield Place(project), user_file(client, Machine())
    own = project_file(client, project)
    if own is not None:
        yield Place(project, is_project_file=True), own


def _answer(
    client: Client, place: Place, path: Path, name: str, entry: Mapping[str, Any]
) -> Finding:
    try:
        answer = start_once(client, entry, place)
    except NoAnswer as error:
        again = f"`kb install {client.name}{' --project' if place.is_project_file else ''}`"
        return Finding(
            "clients", BROKEN, f"{client.title} ({path}, {name}): {error.message}", again
        )
    return Finding(
        "clients",
        SOUND,
        f"{client.title} ({path}): answered in {answer.seconds:.1f} s, {answer.tools} tools",
    )


def _tokens(database: Database) -> Iterator[Finding]:
    """Who may use the file over HTTP."""
    with database.read() as connection:
        counts = count_tokens(connection)
    server = running_server(database.path, find_project())
    if server is not None and server.is_reachable and not counts[VALID]:
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
