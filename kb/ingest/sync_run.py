"""One sync under way: what becomes of each file, and of what is gone.

Other processes may sync the same folder meanwhile, so a transaction acts on what the file holds
then, not on what it held when the sync began.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kb.disk.read import FileState
from kb.disk.write import replace_file
from kb.errors import CollectionNotFound, DocumentTooComplex, KbError, SourceError
from kb.formats.archive import CONTENT_FILE, METADATA_FILE
from kb.formats.convert.result import REMARKS
from kb.ingest.prepare import ReadFile
from kb.ingest.registration import Registration
from kb.ingest.report import SyncReport, tokens_notice
from kb.sources.folder import Opened, SecretFile, SourceFile
from kb.store.collections import collection_name, finish_sync
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, state_of, stored_file
from kb.store.database import Database
from kb.store.documents import NewDocument, delete_document, store_document, touch_documents
from kb.store.vectors import delete_unused_vectors
from kb.text.counted import counted

log = logging.getLogger("kb.sync")

CAPTURES_VARIABLE = "URL_CONTENT_ARCHIVE_PATH"
# Documents a command stores in one transaction: a sixth faster, while others wait some 50 ms.
MAX_BATCH_DOCUMENTS = 8
MAX_BATCH_CHARACTERS = 200_000


@dataclass(slots=True)
class SyncRun:
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
    max_batch: int  # documents that are stored in one transaction
    secret: list[str] = field(default_factory=list)  # paths that turned out to be private keys
    _ready: list[tuple[SourceFile, NewDocument]] = field(default_factory=list)  # to be stored
    _touched: list[tuple[int, FileState]] = field(default_factory=list)
    _shortened: int = 0  # files of which something was left out on purpose
    _gone_paths: dict[bytes, list[str]] = field(default_factory=dict)  # by content hash
    _name: str = ""  # the collection's; its id may be another's by now

    def __post_init__(self) -> None:
        self._name = self.collection["name"]
        for path, row in self.gone.items():
            self._gone_paths.setdefault(row["content_hash"], []).append(path)

    def seems_unchanged(self, file: SourceFile) -> bool:
        """Whether a file has the stored state, and that is trusted."""
        row = self.stored.get(file.path)
        return row is not None and state_of(row) == file.state and not self.force

    def sync_file(self, file: SourceFile) -> None:
        """Store one file if it changed, at once or with others that follow."""
        if self.seems_unchanged(file):
            self.report.unchanged += 1
            return
        row = self.stored.get(file.path)
        source = self.read(file)
        if row is not None and row["content_hash"] == source.content_hash:
            self.report.unchanged += 1
            if (state := source.state_of(file)) != state_of(row):
                self._touched.append((row["document_id"], state))
            return
        new = source.prepare()
        for text in filter(None, (source.notice, *new.parsed.notices, tokens_notice(new.text))):
            self.report.tell(text, file.path)
        is_converted = source.source is None
        remarks = new.parsed.front_matter.get(REMARKS, ())
        self._shortened += is_converted and len(remarks) > len(new.parsed.notices)
        self._ready.append((file, new))
        characters = sum(len(document.text) for _, document in self._ready)
        is_full = len(self._ready) >= self.max_batch or characters > MAX_BATCH_CHARACTERS
        if is_full or is_converted:  # the next one may take long to convert
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
            results = [self._store(connection, collection_id, new) for _, new in ready]
        self._note_registered(collection_id)
        # Counted now: until here the transaction might have been taken back.
        for (file, new), (outcome, old_path) in zip(ready, results, strict=True):
            setattr(self.report, outcome, getattr(self.report, outcome) + 1)
            if old_path:
                self.report.renamed += 1
                del self.gone[old_path]
            _archive_page(file, new)

    @contextlib.contextmanager
    def noting(self, file: SourceFile) -> Iterator[None]:
        """Note what is wrong with a file, and let the next one follow."""
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
        """Whether the collection is unchanged, its version and description too."""
        done = self.report.added or self.report.updated or self.report.removed
        facts = zip(("version", "description"), self._edition, strict=True)
        is_news = any(text and text != self.collection[key] for key, text in facts)
        return not (done or self.gone or self._touched or is_news)

    @property
    def _edition(self) -> tuple[str | None, str | None]:
        manifest = self.source.manifest
        return manifest.version or self.source.version, manifest.description

    def finish(self) -> None:
        """Delete what is gone and what nothing uses any more."""
        if self._shortened:
            pages = counted(self._shortened, "file")
            self.report.tell(f"left out of {pages}: navigation and the like; see `kb outline`")
        is_empty = not (self.has_read or self.stored)
        if self.registration is not None and is_empty and not self.registration.keeps_empty:
            self.report.is_stored = False
            return
        with self.database.write() as connection:
            collection_id = self._registered(connection)
        self._note_registered(collection_id)
        for path, row in self.gone.items():
            with self.database.write() as connection:
                now = stored_file(connection, collection_id, path)
                # Another process may have deleted it, or stored it anew since it came back.
                if now is not None and now["content_hash"] == row["content_hash"]:
                    delete_document(connection, now["document_id"])
                else:
                    now = None
            self.report.removed += now is not None
        with self.database.write() as connection:
            touch_documents(connection, self._touched)
            delete_unused_vectors(connection)
            self.report.total = count_documents(connection, collection_id)
            # Files of earlier versions hold absolute paths alone.
            finish_sync(connection, collection_id, *self._edition, self.collection["source"])

    def _registered(self, connection: Connection) -> int:
        """The collection's id; within this transaction it is stored as planned."""
        if self.registration is not None:
            collection_id = self.registration.store(connection)
            self._name = collection_name(connection, collection_id) or ""
            return collection_id
        collection_id = int(self.collection["collection_id"])
        if collection_name(connection, collection_id) != self._name:  # its id is another's by now
            raise CollectionNotFound(f'the collection "{self._name}" was removed during its sync')
        return collection_id

    def _note_registered(self, collection_id: int) -> None:
        """Note that the transaction succeeded: the collection is stored as planned."""
        if self.registration is not None:
            self.registration = None
            self.collection = {**self.collection, "collection_id": collection_id}

    def _store(
        self, connection: Connection, collection_id: int, new: NewDocument
    ) -> tuple[str, str]:
        """Store a document; what it counts as, and its earlier path."""
        now = stored_file(connection, collection_id, new.path)
        if now is not None and now["content_hash"] == new.content_hash:
            return "unchanged", ""  # another process was first
        old_path, document_id = "", now["document_id"] if now else None
        if now is None:
            old_path, document_id = self._renamed(connection, new.content_hash)
        store_document(connection, collection_id, new, document_id)
        return "added" if document_id is None else "updated", old_path

    def _renamed(self, connection: Connection, content_hash: bytes) -> tuple[str, int | None]:
        """Path and id of a missing document with these bytes: it keeps its vectors."""
        paths = self._gone_paths.get(content_hash, [])
        while paths and paths[-1] not in self.gone:
            paths.pop()
        for path in reversed(paths):
            now = stored_file(connection, self.collection["collection_id"], path)
            if now is not None and now["content_hash"] == content_hash:
                return path, int(now["document_id"])
        return "", None


def _archive_page(file: SourceFile, new: NewDocument) -> None:
    """Write a fetched page to `<md5 of its address>/` in the archive that the environment names."""
    archive = os.environ.get(CAPTURES_VARIABLE)
    if not (archive and file.url):
        return
    root = Path(archive).expanduser()
    folder = root / hashlib.md5(file.url.encode(), usedforsecurity=False).hexdigest()
    facts = {"url": file.url, "title": new.parsed.title, "timestamp": file.captured}
    try:
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder")
        folder.mkdir(exist_ok=True)
        replace_file(folder / CONTENT_FILE, new.text)
        replace_file(folder / METADATA_FILE, json.dumps(facts, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:  # the document itself is stored all the same
        log.warning("%s could not be put into the archive of pages: %s", file.url, error)
