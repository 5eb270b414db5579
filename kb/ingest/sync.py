"""Run the write flow: sources -> parse -> chunk -> store. Skip what is unchanged.

Each document is one transaction, or shares one with a few, and is found by keywords at once.
`kb/ingest/embed.py` gives the chunks their vectors afterwards. Other processes may sync the same
folder meanwhile, so a transaction acts on what the file holds then, not on what it held when the
sync began.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from os.path import splitext
from pathlib import Path

from kb.disk.open_databases import is_open_database
from kb.disk.read import FileState
from kb.disk.secret import is_secret
from kb.disk.write import replace_file
from kb.errors import CollectionNotFound, DocumentTooComplex, KbError, SourceError
from kb.formats.archive import CONTENT_FILE, METADATA_FILE
from kb.formats.convert.formats import INSTALL
from kb.formats.convert.result import REMARKS
from kb.ingest.copying import is_of_shard
from kb.ingest.forget import erase_documents, write_anew
from kb.ingest.link_targets import look_again
from kb.ingest.prepare import Preparation, ReadFile, files_of, is_inside, opened
from kb.ingest.reach import permitted
from kb.ingest.read_ahead import reading
from kb.ingest.registration import Plan, Registration, with_manifest
from kb.ingest.report import Progress, SyncReport, no_progress
from kb.sources.folder import Opened, SecretFile, SourceFile
from kb.store.collections import collection_name, finish_sync
from kb.store.connection import Connection, Row
from kb.store.contents import (
    count_documents,
    state_of,
    stored_file,
    stored_files,
    stored_private_keys,
)
from kb.store.database import Database
from kb.store.documents import NewDocument, delete_document, store_document, touch_documents
from kb.store.tidying import close_ranks, tidy
from kb.store.vectors import delete_unused_vectors
from kb.text.counted import counted, most_first, some_of
from kb.text.secrets import secrets_in

log = logging.getLogger("kb.sync")

CAPTURES_VARIABLE = "URL_CONTENT_ARCHIVE_PATH"
# Documents a command stores in one transaction: a sixth faster, while others wait some 50 ms.
MAX_BATCH_DOCUMENTS = 8
MAX_BATCH_CHARACTERS = 200_000
MAX_KINDS = 8  # kinds of files in a notice


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

    A document that cannot be read, or not in reasonable time, is an error of the report.

    Args:
        collection: a row of `collections`, or what is to become one: that is stored together
            with the first document, so that nothing has changed when this is refused.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.
        may_become_empty: let it do so without reading the other files again.
        reads_ahead: let a second process parse, where there is much text. Not for a server,
            whose answers need the other cores.

    Raises:
        SourceError: the folder is missing, or nobody has confirmed that it may be read, or the sync
            would leave nothing of a collection that holds something, or nothing of what is to be
            added can be read.
        UsageError: the collection cannot be made, or one of its globs can match nothing.
        CollectionNotFound: it was removed meanwhile.
    """
    registration = None if isinstance(collection, dict) else collection
    is_addition = registration is not None
    plan = _plan(database, collection)
    with opened(permitted(database, plan.row)) as source:
        manifested = with_manifest(registration, plan.row, source.manifest)
        if manifested is not None and manifested is not registration:
            registration, plan = manifested, _plan(database, manifested)
        row, preparation = plan.row, Preparation.of(plan.row)
        most = MAX_BATCH_DOCUMENTS if reads_ahead else 1
        run = SyncRun(database, plan, registration, source, preparation.read, force, most)
        report, stored = run.report, run.stored
        files, has_files = run.list_files(preparation)
        to_read = [file for file in files if not run.seems_unchanged(file)] if reads_ahead else []
        hashes = {path: row["content_hash"] for path, row in stored.items()}
        with (
            database.batch(),
            preparation.converter,
            reading(preparation, to_read, hashes) as run.read,
        ):
            try:
                for done, file in enumerate(files):
                    progress("documents", done, len(files))
                    with run.noting(file):
                        run.sync_file(file)
            finally:
                run.store_ready()
            progress("documents", len(files), len(files))
            if not run.has_read:
                if is_addition and report.errors and registration and not registration.keeps_empty:
                    raise _nothing_readable(row, report, has_files=has_files)
                is_emptied = run.gone and len(run.gone) == len(stored)
                if is_emptied and not (may_become_empty or force or run.is_other_shards):
                    raise _would_empty(row, len(stored), is_addition=is_addition)
            run.take_back([path for path in run.secret if path in stored])
            if plan.is_stored and run.has_changed_nothing:
                with database.read() as connection:
                    report.total = count_documents(connection, row["collection_id"])
            else:
                progress("reading", 0, 1)  # what was read: links, words, space; no bar stands still
                run.finish()
            has_changed = bool(report.added or report.updated or report.removed or report.renamed)
            if collection_id := row["collection_id"] or run.collection["collection_id"]:
                look_again(database, collection_id, source.root, has_changed=has_changed)
            if report.added or report.updated or report.removed:
                tidy(database)
            if report.updated or report.removed:
                close_ranks(database)
            progress("reading", 1, 1)
    if run.withheld or run.secret:
        report.tell(f"never stored: {_secret_names([*run.withheld, *run.secret])}")
    return report


def _plan(database: Database, collection: Row | Registration) -> Plan:
    if isinstance(collection, dict):
        return Plan(collection)
    with database.read() as connection:
        return collection.plan(connection)


class SyncRun:
    """One sync under way: what becomes of each file, and of what is gone."""

    def __init__(
        self,
        database: Database,
        plan: Plan,
        registration: Registration | None,
        source: Opened,
        read: Callable[[SourceFile], ReadFile],
        force: bool,
        max_batch: int,
    ) -> None:
        self.database = database
        self.collection = plan.row
        self.registration = registration  # None: the collection is as it is to be
        self.source = source
        self.read = read
        self.force = force
        self.report = SyncReport(plan.row["name"])
        self.gone: dict[str, Row] = {}  # by path; loses what was only renamed
        self.is_other_shards = False  # all that is there
        self.withheld: list[str] = []  # paths with secret names
        self.secret: list[str] = []  # paths that turned out to be private keys
        self._max_batch = max_batch  # documents that are stored in one transaction
        self._ready: list[tuple[SourceFile, NewDocument]] = []  # to be stored
        self._touched: list[tuple[int, FileState]] = []
        self._shortened = 0  # files of which something was left out on purpose
        self._gone_paths: dict[bytes, list[str]] = {}  # by content hash
        self._name = plan.row["name"]  # the collection's id may be another's by now
        # Before the walk: what another process adds after it is not taken for gone.
        self.stored = self._stored(plan)  # by path

    def _stored(self, plan: Plan) -> dict[str, Row]:
        """Stored files by path, without secret ones, which earlier versions of kb let in."""
        collection_id = plan.row["collection_id"]
        with self.database.read() as connection:
            rows = stored_files(connection, collection_id)
            keys = stored_private_keys(connection, collection_id)
        stored = {row["path"]: row for row in rows}
        secret = [path for path in stored if is_secret(path)]
        self.take_back(secret)
        for path in stored.keys() if plan.reads_anew else keys:
            # No time is right for it: it is read again, and a key is taken back if it still is one.
            stored[path] = {**stored[path], "file_size": None}
            if plan.reads_anew:
                stored[path]["content_hash"] = b""
        return {path: row for path, row in stored.items() if path not in secret}

    def take_back(self, paths: Sequence[str]) -> None:
        """Delete stored secret files with every trace."""
        if not paths:
            return
        with self.database.write() as connection:
            key = self.collection["collection_id"]
            rows = [stored_file(connection, key, path) for path in paths]
            # None where another process was first.
            erase_documents(connection, [row["document_id"] for row in rows if row is not None])
        problem = write_anew(self.database)
        message = f"removed, since it is never stored: {_secret_names(paths)}"
        self.report.tell(f"{message}; {problem}" if problem else message)
        self.report.removed += len(paths)

    def list_files(self, preparation: Preparation) -> tuple[list[SourceFile], bool]:
        """The files in available formats, and whether the source has any at all."""
        report, source, skipped = self.report, self.source, list[str]()
        withhold, skip = self.withheld.append, skipped.append
        row = self.collection
        listed = files_of(row, source, report=report.fail, withhold=withhold, skip=skip)
        unread = [error["path"] for error in report.errors]
        skipped = [path for path in skipped if not is_open_database(source.root / path)]
        if self.registration is not None and skipped:
            report.tell(_other_formats(skipped))
        if not listed and (globs := _shown_globs(row)):
            report.tell(f"no file matches{globs}; `kb add` with other globs replaces them")
        for text in (*source.notices, *source.manifest.notices):
            report.tell(text)
        shard = preparation.options.get("shard")
        files = [file for file in listed if is_of_shard(file.path, shard)]
        self.is_other_shards = bool(listed) and not files
        # What could not be listed may still be there: it is neither deleted nor taken for renamed.
        gone_paths = self.stored.keys() - {file.path for file in files}
        for path, stored in self.stored.items():
            if path in gone_paths and not is_inside(path, unread):
                self.gone[path] = stored
                self._gone_paths.setdefault(stored["content_hash"], []).append(path)
        kinds = [preparation.format_of(file) for file in files]
        missing = Counter(kind.name for kind in kinds if kind is not None and not kind.is_available)
        if missing and source.root.is_file():
            raise SourceError(
                f"{source.root.name} is a file in the format {next(iter(missing))}: `{INSTALL}` "
                "adds its reading",
                path=str(source.root),
            )
        if missing:
            names = ", ".join(f"{count} {name}" for name, count in most_first(missing))
            report.tell(f"left out: {names}; `{INSTALL}` adds these formats")
        pairs = zip(files, kinds, strict=True)
        available = [file for file, kind in pairs if kind is None or kind.is_available]
        return available, bool(listed)

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
        is_full = len(self._ready) >= self._max_batch or characters > MAX_BATCH_CHARACTERS
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
            self.report.fail(file.path, error.message)
        except KbError:
            raise  # the knowledge base itself: it would fail for the next file too
        except RecursionError:
            self.report.fail(file.path, "is nested too deeply to be read as a document")
        except Exception as error:
            log.warning("%s", file.path, exc_info=True)
            self.report.fail(file.path, f"cannot be stored: {type(error).__name__}: {error}")

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


def _would_empty(collection: Row, count: int, *, is_addition: bool) -> SourceError:
    """The refusal to delete everything in a collection."""
    name, source = collection["name"], collection["source"]
    way_out = (
        "check the globs"
        if is_addition
        else f"bring the files back, give other globs with `kb add`, or `kb remove {name}`"
    )
    return SourceError(
        f"{source} holds no matching file{_shown_globs(collection)} that can be read, but the "
        f'collection "{name}" has {counted(count, "document")}: nothing was changed; {way_out}',
        path=source,
    )


def _nothing_readable(collection: Row, report: SyncReport, *, has_files: bool) -> SourceError:
    """The refusal to add a collection without documents, with the first of its errors."""
    first = report.errors[0]
    others = f" ({len(report.errors) - 1} more failed)" if len(report.errors) > 1 else ""
    where = f"{first['path']}: "
    if not first["path"] or where in first["message"]:  # "Cannot read a.md: ..."
        where = ""
    globs = "" if has_files else _shown_globs(collection)
    unfit = f"no file matches{globs}; " if globs else ""
    return SourceError(
        f"nothing was added: {unfit}{where}{first['message']}{others}", path=collection["source"]
    )


def _shown_globs(collection: Row) -> str:
    """A collection's globs, for a message that nothing matches; "" without any."""
    only, never = json.loads(collection["include"]), json.loads(collection["exclude"])
    parts = [
        f"{word} {', '.join(globs)}" for word, globs in (("only", only), ("not", never)) if globs
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _other_formats(paths: Sequence[str]) -> str:
    """The notice about files that are not documents, by suffix."""
    kinds = Counter(splitext(path)[1].lower() or "without a suffix" for path in paths)
    shown = [f"{count} {kind}" for kind, count in most_first(kinds)[:MAX_KINDS]]
    if len(kinds) > MAX_KINDS:
        shown.append(f"{len(kinds) - MAX_KINDS} other kinds")
    return f"left out for their formats: {', '.join(shown)} (--include takes any text files)"


def _secret_names(paths: Sequence[str]) -> str:
    """Some of the files that are never stored, and why."""
    return f"{some_of(sorted(paths))} (secret by name, or a private key)"


def tokens_notice(text: str) -> str:
    """The notice about what looks like secrets in a document, which is stored all the same."""
    lines = [f"line {secret.line} ({secret.kind})" for secret in secrets_in(text)]
    return f"stored, though it seems to hold a secret: {some_of(lines)}" if lines else ""
