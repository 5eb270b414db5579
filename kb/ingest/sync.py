"""Run the write flow: sources -> parse -> chunk -> store. Skip what is unchanged.

Text first: each document is one transaction and found by keywords at once. `kb/ingest/embed.py`
gives the chunks their vectors afterwards. Other processes may sync the same folder meanwhile, so
what a transaction does depends on what the file holds then, not on what it held when the sync
began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kb.disk.secret import is_secret
from kb.errors import CollectionNotFound, DocumentTooComplex, KbError, SourceError
from kb.ingest.captures import archive_page
from kb.ingest.prepare import Preparation, ReadFile, files_of, is_inside, opened, trusted_time
from kb.ingest.progress import Progress, no_progress
from kb.ingest.read_ahead import reading
from kb.ingest.refused import (
    nothing_readable,
    other_formats,
    shown_globs,
    without_unavailable,
    would_empty,
)
from kb.ingest.registration import Plan, Registration, as_told
from kb.ingest.report import SyncReport
from kb.ingest.secret_files import erase_secret_files, named, tokens_notice
from kb.sources.folder import SecretFile, SourceFile
from kb.sources.opened import Opened
from kb.store.collections import collection_name, finish_sync, keep_relative
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, stored_file, stored_files, stored_private_keys
from kb.store.database import Database
from kb.store.documents import NewDocument, delete_document, store_document, touch_documents
from kb.store.embeddings import delete_unused_vectors
from kb.store.file_on_disk import is_part_of
from kb.store.tidying import close_ranks, tidy

__all__ = [
    "SyncReport",
    "sync_collection",
]

log = logging.getLogger("kb.sync")


def sync_collection(
    database: Database,
    collection: Row | Registration,
    *,
    force: bool = False,
    may_become_empty: bool = False,
    reads_ahead: bool = False,
    progress: Progress = no_progress,
) -> SyncReport:
    """Bring a collection's documents in line with its folder; no embedding yet.

    Args:
        collection: a row of `collections`, or what is to become one: that is stored together
            with the first document, so that nothing has changed when this is refused.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.
        may_become_empty: let it do so without reading the other files again.
        reads_ahead: where there is much text, a second process parses it. Nobody else is to
            compute on this machine's cores meanwhile, such as a server that answers.

    A document that cannot be read, or not in reasonable time, is an error of the report.

    Raises:
        SourceError: the folder is missing, or the sync would leave nothing of a collection that
            holds something, or nothing of what is to be added can be read.
        UsageError: the collection cannot be made, or one of its globs can match nothing.
        CollectionNotFound: it was removed meanwhile.
    """
    registration = None if isinstance(collection, dict) else collection
    plan = _plan(database, collection)
    with opened(plan.row) as source:
        told = as_told(registration, plan.row, source.manifest)
        if told is not None and told is not registration:
            registration, plan = told, _plan(database, told)
        return _sync_files(
            database,
            plan,
            registration,
            source,
            is_addition=not isinstance(collection, dict),
            force=force,
            may_become_empty=may_become_empty or force,
            reads_ahead=reads_ahead,
            progress=progress,
        )


def _sync_files(
    database: Database,
    plan: Plan,
    registration: Registration | None,
    source: Opened,
    *,
    is_addition: bool,
    force: bool,
    may_become_empty: bool,
    reads_ahead: bool,
    progress: Progress,
) -> SyncReport:
    """The sync itself."""
    row = plan.row
    report = SyncReport(row["name"])
    unreadable: list[str] = []

    def note(path: str, message: str) -> None:
        report.fail(path, message)
        unreadable.append(path)

    # Before the walk: what another process adds after it is not taken for gone.
    stored = _stored(database, plan, report)
    withheld: list[str] = []
    skipped: list[str] = []
    files = files_of(row, source, report=note, withhold=withheld.append, skip=skipped.append)
    skipped = [path for path in skipped if not is_part_of(database.path, source.root / path)]
    if registration is not None and skipped:
        report.tell(other_formats(skipped))
    if stored and not files and not may_become_empty:
        raise would_empty(row, len(stored), is_addition=is_addition)
    if not files and shown_globs(row):
        message = f"no file matches{shown_globs(row)}; `kb add` with other globs replaces them"
        report.tell(message)
    for text in source.notices:
        report.tell(text)
    found = {file.path for file in files}
    gone = {path: known for path, known in stored.items() if path not in found}
    # What could not be listed may still be there: it is neither deleted nor taken for renamed.
    gone = {path: known for path, known in gone.items() if not is_inside(path, unreadable)}
    preparation = Preparation.of(row)
    files = without_unavailable(files, preparation, report, source.root)
    run = _Run(database, row, registration, stored, gone, force, report, source, preparation.read)
    to_read = [file for file in files if not run.seems_unchanged(file)] if reads_ahead else []
    hashes = {path: known["content_hash"] for path, known in stored.items()}
    with database.batch(), preparation.converter, reading(preparation, to_read, hashes) as run.read:
        for done, file in enumerate(files):
            progress("documents", done, len(files))
            _sync_one(run, file, note)
        progress("documents", len(files), len(files))
        if not run.has_read:
            if is_addition and report.errors and registration and not registration.keeps_empty:
                raise nothing_readable(row, report, found_none=not found)
            if gone and len(gone) == len(stored) and not may_become_empty:
                raise would_empty(row, len(stored), is_addition=is_addition)
        taken_back = [path for path in run.secret if path in stored]
        _take_back(database, row["collection_id"], taken_back, report)
        if plan.is_stored and run.has_changed_nothing:
            with database.read() as connection:
                report.total = count_documents(connection, row["collection_id"])
        else:
            run.finish()
        if report.added or report.updated or report.removed:
            tidy(database)
        if report.updated or report.removed:
            close_ranks(database)
    if withheld or run.secret:
        message = f"never stored: {named([*withheld, *run.secret])}"
        report.tell(message)
    return report


def _plan(database: Database, collection: Row | Registration) -> Plan:
    if isinstance(collection, dict):
        return Plan(collection)
    with database.read() as connection:
        return collection.plan(connection)


def _sync_one(run: _Run, file: SourceFile, note: Callable[[str, str], None]) -> None:
    try:
        run.sync_file(file)
    except SecretFile:
        run.secret.append(file.path)
    except (SourceError, DocumentTooComplex) as error:
        note(file.path, error.message)
    except KbError:
        raise  # the knowledge base itself: it would fail for the next file too
    except RecursionError:
        note(file.path, "is nested too deeply to be read as a document")
    except Exception as error:
        log.warning("%s", file.path, exc_info=True)
        note(file.path, f"cannot be stored: {type(error).__name__}: {error}")


def _stored(database: Database, plan: Plan, report: SyncReport) -> dict[str, Row]:
    """The stored files by path; secret ones that an earlier version of kb let in go first."""
    collection_id = plan.row["collection_id"]
    with database.read() as connection:
        rows = stored_files(connection, collection_id)
        keys = stored_private_keys(connection, collection_id)
    stored = {row["path"]: row for row in rows}
    secret = [path for path in stored if is_secret(path)]
    _take_back(database, collection_id, secret, report)
    for path in stored.keys() if plan.reads_anew else keys:
        # No time is right for it: it is read again, and a key is taken back if it still is one.
        stored[path] = {**stored[path], "file_size": None, "modified_ns": None}
        if plan.reads_anew:
            stored[path]["content_hash"] = b""
    return {path: row for path, row in stored.items() if path not in secret}


def _take_back(
    database: Database, collection_id: int, paths: Sequence[str], report: SyncReport
) -> None:
    if paths:
        message = erase_secret_files(database, collection_id, paths)
        report.removed += len(paths)
        report.tell(message)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What storing one document did, if its transaction is stored.

    Attributes:
        is_same: it was there as it is; another process was first.
        old_path: of a file that was renamed, else "".
    """

    is_new: bool = False
    is_same: bool = False
    old_path: str = ""


@dataclass(slots=True)
class _Run:
    """One sync under way."""

    database: Database
    collection: Row
    registration: Registration | None  # None: the collection is as it is to be
    stored: dict[str, Row]  # by path, as it was at the start
    gone: dict[str, Row]  # by path: not in the folder any more; loses what was only renamed
    force: bool
    report: SyncReport
    source: Opened
    read: Callable[[SourceFile], ReadFile]
    secret: list[str] = field(default_factory=list)  # paths that turned out to be private keys
    _touched: list[tuple[int, int, int | None]] = field(default_factory=list)
    _gone_paths: dict[bytes, list[str]] = field(default_factory=dict)  # by content hash
    _name: str = ""  # the collection's, by which it is known again

    def __post_init__(self) -> None:
        self._name = self.collection["name"]
        for path, row in self.gone.items():
            self._gone_paths.setdefault(row["content_hash"], []).append(path)

    def seems_unchanged(self, file: SourceFile) -> bool:
        """Whether a file has the size and time of what is stored, and these are believed."""
        known = self.stored.get(file.path)
        stamp = (known["file_size"], known["modified_ns"]) if known else None
        return stamp == (file.size, file.modified_ns) and not self.force

    def sync_file(self, file: SourceFile) -> None:
        """Store one file if it changed.

        Raises:
            SourceError: it cannot be read.
        """
        if self.seems_unchanged(file):
            self.report.unchanged += 1
            return
        known = self.stored.get(file.path)
        source = self.read(file)
        if known is not None and known["content_hash"] == source.content_hash:
            self.report.unchanged += 1
            new_stamp = (file.size, trusted_time(file))
            if new_stamp != (known["file_size"], known["modified_ns"]):
                self._touched.append((known["document_id"], *new_stamp))
            return
        new = source.prepare()
        for text in filter(None, (source.notice, *new.parsed.notices, tokens_notice(new.text))):
            self.report.tell(text, file.path)
        with self.database.write() as connection:
            collection_id = self._registered(connection)
            stored = self._store(connection, collection_id, new)
        self._note_registered(collection_id)
        self._count(stored)
        archive_page(file, new)

    @property
    def has_read(self) -> bool:
        """Whether any file of the folder is in the collection now."""
        return bool(self.report.added or self.report.updated or self.report.unchanged)

    @property
    def has_changed_nothing(self) -> bool:
        """Whether the collection is as it was, the source's own name for its edition too."""
        done = self.report.added or self.report.updated or self.report.removed
        source = self.source
        told = source.manifest.version or source.version or source.manifest.description
        return not (done or self.gone or self._touched or told)

    def finish(self) -> None:
        """Delete what is gone and what nothing uses any more."""
        empty = not (self.has_read or self.stored)
        if self.registration is not None and empty and not self.registration.keeps_empty:
            self.report.is_stored = False
            return
        with self.database.write() as connection:
            collection_id = self._registered(connection)
        self._note_registered(collection_id)
        for path, row in self.gone.items():
            with self.database.write() as connection:
                now = stored_file(connection, collection_id, path)
                # Another process may have deleted it, or stored it anew since it came back.
                is_stored = now is not None and now["content_hash"] == row["content_hash"]
                if now is not None and is_stored:
                    delete_document(connection, now["document_id"])
            self.report.removed += is_stored
        with self.database.write() as connection:
            touch_documents(connection, self._touched)
            delete_unused_vectors(connection)
            self.report.total = count_documents(connection, collection_id)
            manifest = self.source.manifest
            version = manifest.version or self.source.version
            finish_sync(connection, collection_id, version, manifest.description)
            # Files of earlier versions hold absolute paths alone.
            keep_relative(connection, collection_id, self.collection["source"])

    def _registered(self, connection: Connection) -> int:
        """The collection's id; within this transaction it is as it is to be.

        Raises:
            CollectionNotFound: it was removed meanwhile; another one may have its id by now.
        """
        if self.registration is not None:
            collection_id = self.registration.store(connection)
            self._name = collection_name(connection, collection_id) or ""
            return collection_id
        collection_id = int(self.collection["collection_id"])
        if collection_name(connection, collection_id) != self._name:
            raise CollectionNotFound(f'the collection "{self._name}" was removed during its sync')
        return collection_id

    def _note_registered(self, collection_id: int) -> None:
        """The transaction was stored: from now on the collection is as it is to be."""
        if self.registration is not None:
            self.registration = None
            self.collection = {**self.collection, "collection_id": collection_id}

    def _store(self, connection: Connection, collection_id: int, new: NewDocument) -> _Stored:
        now = stored_file(connection, collection_id, new.path)
        if now is not None and now["content_hash"] == new.content_hash:
            return _Stored(is_same=True)  # another process was first
        old_path, document_id = "", now["document_id"] if now else None
        if now is None:
            old_path, document_id = self._renamed(connection, new.content_hash)
        store_document(connection, collection_id, new, document_id)
        return _Stored(is_new=document_id is None, old_path=old_path)

    def _count(self, stored: _Stored) -> None:
        """The transaction was stored: until now it might have been taken back."""
        self.report.unchanged += stored.is_same
        self.report.added += stored.is_new
        self.report.updated += not (stored.is_same or stored.is_new)
        if stored.old_path:
            self.report.renamed += 1
            del self.gone[stored.old_path]

    def _renamed(self, connection: Connection, content_hash: bytes) -> tuple[str, int | None]:
        """Path and id of a document with the same bytes whose path is gone: it keeps its vectors.

        "" and None where there is none.
        """
        collection_id = self.collection["collection_id"]
        paths = self._gone_paths.get(content_hash, [])
        while paths and paths[-1] not in self.gone:
            paths.pop()
        for path in reversed(paths):
            now = stored_file(connection, collection_id, path)
            if now is not None and now["content_hash"] == content_hash:
                return path, int(now["document_id"])
        return "", None
