"""Whether a file and what is in it are sound, and what kb depends on: Python, SQLite, ripgrep,
models, disk space, configuration."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kb.disk.read import UNKNOWN_STATE
from kb.disk.ripgrep import ripgrep_version
from kb.errors import ConfigurationError, EmbeddingError, FileError, KbError, SourceError
from kb.formats.convert.formats import INSTALL
from kb.ingest.copying import is_of_shard
from kb.ingest.embed import embed_pending
from kb.ingest.follow import VARIABLES
from kb.ingest.prepare import Preparation, files_of, is_inside, opened
from kb.ingest.reach import unconfirmed
from kb.ingest.report import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.models.choose import how_to_get, make_embedder, packaged_models
from kb.models.embedder import Embedder, sends_to
from kb.open_file import load_aliases
from kb.project.in_use import allowed_folders, find_config, load_project
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.search.rows import copies
from kb.settings import DATABASE_VARIABLES, VERSION, paths_named_by
from kb.sources.address import is_remote, local
from kb.sources.folder import SecretFile, SourceFile
from kb.store.access_tokens import EXPIRED, VALID, count_tokens
from kb.store.collections import all_collections
from kb.store.connection import Row
from kb.store.contents import count_waiting, state_of, stored_files, texts_of_collection
from kb.store.database import Database
from kb.store.health import REPAIRS, WHOLE_BYTES, quick, repair, sampled, thorough
from kb.store.replication.replicate import finding
from kb.store.vectors import current_model
from kb.text.counted import counted, most_first, some_of
from kb.text.secrets import secrets_in

CHECKS = 6  # of a sound file
MOST_TOLD = 5  # files of a collection that get a finding of their own
MAX_READ = 200  # files that are opened to learn why they are not stored, or whether they changed
ROOM = 2  # copies of the file that should fit on the disk: a migration makes one
REINSTALL = "`pip install --force-reinstall kbfile`"


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
        yield from check_models(None)
        return
    try:
        with Database(path, create=False) as database:
            yield from look_at_open(database, is_offered=is_offered, full=full, progress=progress)
    except FileError as error:
        yield Finding("file", BROKEN, error.message)
    # From a damaged value: a text that is NULL, a count of 0, a name that is gone.
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        message = f"a value in the file cannot be read: {type(error).__name__}: {error}"
        remedy = "restore a copy, or delete the file and `kb add` the folders again"
        yield Finding("file", BROKEN, message, remedy)


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
        problems = quick(connection)
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
    yield from check_models(model["name"] if model else None)
    yield from _check_disk(database.path)
    for collection in collections:
        if collection["source"]:
            yield from _collection(database, collection)
    if full:
        yield from _copies(database)
        yield from _secrets(database, collections, progress)
    yield from _access_tokens(database, is_offered)


def _collection(database: Database, collection: Row) -> Iterator[Finding]:
    name, source = collection["name"], collection["source"]

    def report(state: str, message: str, remedy: str = "", check: str = "collections") -> Finding:
        return Finding(check, state, f"{name}: {message}", remedy)

    if is_remote(source):
        return  # remote sources are not fetched for a check
    if unconfirmed(database, [collection]):
        message = f"not compared with {source}, which nobody has said that this file may read"
        yield report(HINT, message, f"`kb trust {name}` says so")
        return
    try:
        freshness = look_at(database, collection)
    except SourceError as error:
        is_gone = not local(source).exists()
        why = f"its source {source} is not on this machine" if is_gone else error.message
        remedy = (
            f"bring it back and `kb sync {name}`, or say where it is now with "
            f"`kb move {name} FOLDER`, or `kb remove {name}`"
        )
        yield report(HINT, f"{why}; what is stored can be searched", remedy)
        return
    if collection["synced_at"] is None:
        yield report(HINT, "no sync of it has ended yet", f"`kb sync {name}`")
    elif freshness.is_fresh:
        yield report(SOUND, f"as in {source}")
    else:
        parts = (
            f"{len(paths)} {word} ({some_of(paths)})"
            for word in ("new", "changed", "gone")
            if (paths := getattr(freshness, word))
        )
        yield report(HINT, f"out of date: {', '.join(parts)}", f"`kb sync {name}`")
    skipped = "skipped files"
    for path, reason in freshness.failed[:MOST_TOLD]:
        shown = f"{path}: {reason}" if path else reason
        yield report(HINT, shown, "mend it, or leave it out with --exclude", skipped)
    if (more := len(freshness.failed) - MOST_TOLD) > 0:
        message = f"{counted(more, 'more file')} cannot be stored"
        yield report(HINT, message, f"`kb sync {name}` names them all", skipped)
    if freshness.unavailable:
        kinds = ", ".join(f"{count} {kind}" for kind, count in most_first(freshness.unavailable))
        yield report(HINT, f"left out: {kinds}", f"`{INSTALL}`", skipped)
    if freshness.withheld:
        yield report(SOUND, f"never stored: {some_of(freshness.withheld)}", check=skipped)


def _secrets(
    database: Database, collections: Sequence[Row], progress: Progress
) -> Iterator[Finding]:
    """What looks like a secret in the stored texts, without showing it."""
    places: list[str] = []
    for number, collection in enumerate(collections):
        progress("secrets", number, len(collections))
        with database.read() as connection:
            texts = texts_of_collection(connection, collection["collection_id"])
        places += [
            f"{collection['name']}/{path}:{secret.line} ({secret.kind})"
            for path, text in texts
            for secret in secrets_in(text)
        ]
    if places:
        count = counted(len(places), "place looks like a secret", "places look like secrets")
        remedy = "if one is real: change it at its owner's, take it out of the document, `kb sync`"
        yield Finding("secrets", HINT, f"{count}: {some_of(places)}", remedy)
    else:
        yield Finding("secrets", SOUND, "no stored text holds what looks like one")


def _copies(database: Database) -> Iterator[Finding]:
    """Documents stored more than once, of which a search shows only the best."""
    with database.read() as connection:
        groups = [" = ".join(group) for group in copies(connection)]
    if groups:
        message = f"{counted(len(groups), 'document')} with copies: {some_of(groups, MOST_TOLD)}"
        remedy = "searches show one of each; to keep one alone, delete the others, then `kb sync`"
        yield Finding("copies", HINT, message, remedy)


def _access_tokens(database: Database, is_offered: bool) -> Iterator[Finding]:
    with database.read() as connection:
        counts = count_tokens(connection)
    if is_offered and not counts[VALID]:
        message = (
            "a server offers this file to other machines, and all who use it share one token, that "
            "of the one who runs it"
        )
        remedy = "make one for each person, which can be revoked alone: `kb token add NAME`"
        yield Finding("tokens", HINT, message, remedy)
    elif counts[EXPIRED]:
        message = f"{counts[VALID]} valid, {counts[EXPIRED]} expired, which open nothing"
        remedy = "make their owners new ones with `kb token add NAME`, or `kb token forget`"
        yield Finding("tokens", HINT, message, remedy)
    elif counts:
        yield Finding("tokens", SOUND, f"{counts[VALID]} valid")


@dataclass(slots=True)
class Freshness:
    """What a sync would do."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    withheld: list[str] = field(default_factory=list)  # secret files, which are never stored
    unavailable: Counter[str] = field(default_factory=Counter)  # left out, by missing format

    @property
    def is_fresh(self) -> bool:
        return not (self.new or self.changed or self.gone)


def look_at(database: Database, collection: Row) -> Freshness:
    """Compare a collection with its folder, file by file. Raises SourceError if unreadable."""
    fresh = Freshness()
    preparation = Preparation.of(collection)
    with database.read() as connection:
        rows = stored_files(connection, collection["collection_id"])
    with opened(collection, fetch=False) as source, preparation.converter:
        files = files_of(
            collection,
            source,
            report=lambda path, message: fresh.failed.append((path, message)),
            withhold=fresh.withheld.append,
        )
        shard = preparation.options.get("shard")
        files = [file for file in files if is_of_shard(file.path, shard)]
        elsewhere = {entry.path for entry in source.manifest.entries if entry.url}
        stored = {row["path"]: row for row in rows if row["path"] not in elsewhere}
        unread = [path for path, _ in fresh.failed]
        gone = sorted(stored.keys() - {file.path for file in files})
        fresh.gone = [path for path in gone if not is_inside(path, unread)]
        number_read = 0
        for file in files:
            row = stored.get(file.path)
            state = state_of(row) if row else UNKNOWN_STATE
            if state == file.state:
                continue
            kind = preparation.format_of(file)
            if kind is not None and not kind.is_available:
                fresh.unavailable[kind.name] += 1
                continue
            number_read += 1
            if number_read <= MAX_READ:
                _read(fresh, file, row, preparation)
            elif state[:2] != file.state[:2]:  # else copied with its time: the next sync reads it
                (fresh.changed if row else fresh.new).append(file.path)
    return fresh


def _read(fresh: Freshness, file: SourceFile, row: Row | None, preparation: Preparation) -> None:
    """Tell changed files from those that were only touched, or cannot be stored."""
    try:
        content = preparation.read(file)
        if row is None:
            content.prepare()
            fresh.new.append(file.path)
        elif row["content_hash"] != content.content_hash:
            fresh.changed.append(file.path)
    except SecretFile:
        fresh.withheld.append(file.path)
    except KbError as error:
        fresh.failed.append((file.path, error.message))
    except Exception as error:  # noqa: BLE001 - whatever keeps a document out is what we tell
        fresh.failed.append((file.path, f"{type(error).__name__}: {error}"))


def check_program() -> Iterator[Finding]:
    """Python, kb, and the libraries that they load."""
    python = f"Python {platform.python_version()} ({sys.executable})"
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("environment", SOUND, f"kb {VERSION}, {python}, {system}")
    try:
        with Database(":memory:") as database, database.read() as connection:
            versions = connection.versions()
    except KbError as error:
        yield Finding("SQLite", BROKEN, error.message, REINSTALL)
    else:
        message = f"{versions['sqlite']} with FTS5, sqlite-vec {versions['vector']}"
        yield Finding("SQLite", SOUND, message)
    try:
        yield Finding("ripgrep", SOUND, ripgrep_version())
    except ConfigurationError as error:
        message = f"{error.message} `kb grep` does not work without"
        yield Finding("ripgrep", HINT, message, REINSTALL)


def check_models(current: str | None) -> Iterator[Finding]:
    """The packaged models, and the file's own, `current`, if it is another."""
    for name, check in packaged_models().items():
        try:
            check()
        except EmbeddingError as error:
            state = BROKEN if name == current else HINT
            yield Finding("models", state, error.message, how_to_get(name))
        else:
            yield Finding("models", SOUND, f"{name} is installed, and is the one it should be")
    if current is not None and current not in packaged_models():
        try:
            make_embedder(current).embed(["hello"])
        except EmbeddingError as error:
            message = "the model of the file cannot be used, searches use keywords alone: "
            yield Finding("models", BROKEN, message + error.message, how_to_get(current))
        else:
            host = sends_to(current)
            sent = f"; texts and questions are sent to {host}" if host else ""
            yield Finding("models", SOUND, f"{current}, the model of the file, can be used{sent}")


def _check_disk(path: Path) -> Iterator[Finding]:
    folder = path.parent
    try:
        free, size = shutil.disk_usage(folder).free, path.stat().st_size
    except OSError:
        return
    if free < ROOM * size:
        message = (
            f"{free / 1e6:.0f} MB are free in {folder}, the file has {size / 1e6:.0f} MB: a "
            "migration or `kb copy` may not fit"
        )
        yield Finding("disk", HINT, message, "make room")
    if not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
        message = f"{path} cannot be written: searches work, syncs do not"
        yield Finding("disk", HINT, message, "copy it to a writable folder to change it")


def check_configuration(project: Path, collections: set[str]) -> Iterator[Finding]:
    """Alias files, the project's and the user's configuration, and environment variables."""
    complaints: list[str] = []
    aliases = load_aliases(project, complaints.append)
    complaints += [
        f'the alias "{alias}" names the collection "{target}", which does not exist'
        for alias, target in aliases.items()
        if target not in collections
    ]
    allowed = allowed_folders((), complaints.append)
    with contextlib.suppress(ConfigurationError):  # a project need not have one
        find_config(project)
        try:
            complaints += load_project(start=project, allowed=allowed).warnings
        except ConfigurationError as error:
            complaints.append(error.message)
    complaints += [
        f"{variable} names {path}, which does not exist"
        for variable in DATABASE_VARIABLES
        for path in paths_named_by(variable)
        if not path.exists()
    ]
    complaints += [
        f"{variable} names {value}, which is not a folder"
        for variable in VARIABLES
        if (value := os.environ.get(variable)) and not Path(value).expanduser().is_dir()
    ]
    for complaint in complaints:
        yield Finding("configuration", HINT, complaint, "mend or remove it")
    if not complaints:
        yield Finding("configuration", SOUND, "nothing is wrong with it")
