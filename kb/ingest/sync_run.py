"""One sync under way: what becomes of each file, and of what is gone.

Other processes may sync the same folder meanwhile, so what a transaction does depends on what the
file holds then, not on what it held when the sync began.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kb.errors import CollectionNotFound, DocumentTooComplex, KbError, SourceError
from kb.ingest.captures import archive_page
from kb.ingest.prepare import ReadFile, trusted_time
from kb.ingest.registration import Registration
from kb.ingest.report import SyncReport
from kb.ingest.secret_files import tokens_notice
from kb.sources.folder import SecretFile, SourceFile
from kb.sources.opened import Opened
from kb.store.collections import collection_name, finish_sync, keep_relative
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, stored_file
from kb.store.database import Database
from kb.store.documents import NewDocument, delete_document, store_document, touch_documents
from kb.store.embeddings import delete_unused_vectors

__all__ = ["MOST_TOGETHER", "SyncRun"]

log = logging.getLogger("kb.sync")

# Documents that a command stores in one transaction, each whole: that takes a sixth less than one
# transaction each. Together they are stored in some 50 ms, for which others wait.
MOST_TOGETHER = 8
CHARACTERS_TOGETHER = 200_000


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
class SyncRun:
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
    note: Callable[[str, str], None]
    most_together: int  # documents that are stored in one transaction
    secret: list[str] = field(default_factory=list)  # paths that turned out to be private keys
    _ready: list[tuple[SourceFile, NewDocument]] = field(default_factory=list)  # to be stored
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
        """Store one file if it changed, at once or with others that follow.

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
        self._ready.append((file, new))
        characters = sum(len(one.text) for _, one in self._ready)
        is_enough = len(self._ready) >= self.most_together or characters > CHARACTERS_TOGETHER
        if is_enough or source.source is None:  # the next one may take long to convert
            self.store_ready()

    def store_ready(self) -> None:
        """Store the documents that are ready: all in one transaction, or else each in its own."""
        ready, self._ready = self._ready, []
        try:
            self._store_together(ready)
        except KbError:
            raise  # see `noting`
        except Exception:  # noqa: BLE001 - it comes again, with the document that it is about
            for file, new in ready:
                with self.noting(file):
                    self._store_together([(file, new)])

    def _store_together(self, ready: Sequence[tuple[SourceFile, NewDocument]]) -> None:
        if not ready:
            return
        with self.database.write() as connection:
            collection_id = self._registered(connection)
            stored = [self._store(connection, collection_id, new) for _, new in ready]
        self._note_registered(collection_id)
        for (file, new), one in zip(ready, stored, strict=True):
            self._count(one)
            archive_page(file, new)

    @contextlib.contextmanager
    def noting(self, file: SourceFile) -> Iterator[None]:
        """Note what is wrong with one file, and go on with the next."""
        try:
            yield
        except SecretFile:
            self.secret.append(file.path)
        except (SourceError, DocumentTooComplex) as error:
            self.note(file.path, error.message)
        except KbError:
            raise  # the knowledge base itself: it would fail for the next file too
        except RecursionError:
            self.note(file.path, "is nested too deeply to be read as a document")
        except Exception as error:
            log.warning("%s", file.path, exc_info=True)
            self.note(file.path, f"cannot be stored: {type(error).__name__}: {error}")

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
