"""What goes into the file and out of it: sources added and synced, passages embedded, removals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kb.errors import CollectionNotFound, EmbeddingError, KbError, SourceError, UsageError
from kb.ingest.embed import THREADS, EmbedReport, embed_pending, reembed as embed_anew
from kb.ingest.engine import Engine
from kb.ingest.reach import confirm, unconfirmed
from kb.ingest.registration import MovedSource, SourceRegistration
from kb.ingest.report import Progress, SyncReport, no_progress
from kb.ingest.sync import sync_collection
from kb.library.sources import register, rows_to_sync, stored_source
from kb.library.workspace import Workspace
from kb.results.care import Embedded, Removed, SyncedCollection, SyncResults
from kb.results.findings import Reach
from kb.sources.address import is_remote, local
from kb.store.chunks import WHOLE_FILE, ChunkRange, collection_range, count_waiting
from kb.store.collections import find_collection_id
from kb.store.connection import Row
from kb.store.contents import count_documents
from kb.store.documents import delete_collection, delete_document
from kb.store.embeddings import delete_unused_vectors
from kb.store.names import ALL_KINDS

Tell = Callable[[str], None]


def _silence(_: str) -> None:
    """The default listener to workers."""


class Collecting(Workspace):
    def add(
        self,
        *sources: str | os.PathLike[str],
        name: str | None = None,
        kind: str | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        description: str | None = None,
        settings: dict[str, Any] | None = None,
        embed: bool = True,
        progress: Progress = no_progress,
    ) -> SyncResults:
        """Add folders, files, bundles, repositories or addresses as collections, and sync them.

        If one of them cannot be added, none is.

        Args:
            sources: paths or addresses, as on the command line.
            name: of the collection; by default the source's.
            kind: "documents" (default), "archive" or "external".
            include, exclude: globs of the files to take and to leave out.
            settings: how the source is read: `source`, `allow_private`, `url_field`,
                `published`, `ocr`.

        Raises:
            SourceError: there is no such source, or nothing of the only one can be read.
            UsageError: the name is taken, the source secret, or an address malformed.
        """
        registrations = {}
        for source in [os.fspath(source) for source in sources]:
            registration = register(
                *(self.database, source),
                name=name,
                kind=kind,
                include=include,
                exclude=exclude,
                description=description,
                settings=settings,
            )
            registrations[registration.source] = registration
        if embed:
            self.model.require_chosen()  # before anything is read
        total, error = EmbedReport(), ""
        reports, has_failed = _sync_each(self, [*registrations.values()], progress)
        for report in reports:
            if embed and report.is_stored and not error:
                part, error = _embed(self, progress, _synced_range(self, report.collection))
                total.embedded += part.embedded
                total.reused += part.reused
        notice = ""
        if total.embedded and (model := self.model.better_model()):
            notice = (
                "the languages of the documents suit another model than the file's "
                f"{self.model.model_name()}: `kb reembed --model {model}` finds more"
            )
        return _results(self, reports, total, error, notice, has_failed)

    def add_for_search(
        self,
        source: str | os.PathLike[str],
        *,
        collections: Sequence[str] = (),
        progress: Progress = no_progress,
    ) -> SyncedCollection:
        """Add a source that is about to be searched, without vectors.

        Nothing is added if one of the `collections` to search is neither there nor the new one.

        Raises:
            SourceError, UsageError: as `add`.
        """
        registration = register(self.database, os.fspath(source))
        with self.database.read() as connection:
            added = registration.plan(connection).row["name"]
            for name in collections:
                if name != added:
                    self.names.collection(connection, name)
        report = sync_collection(self.database, registration, reads_ahead=True, progress=progress)
        return SyncedCollection(**asdict(report))

    def sync(
        self,
        names: Sequence[str] = (),
        *,
        force: bool = False,
        embed: bool = True,
        workers: str = "",
        tell: Tell = _silence,
        progress: Progress = no_progress,
    ) -> SyncResults:
        """Bring collections, by default all, in line with their sources; embed all that waits.

        Args:
            force: read every file again, and let an empty folder empty its collection.

        Raises:
            UsageError: there is nothing to sync, or a collection has no source.
        """
        rows = rows_to_sync(self, names)
        with self.database.read() as connection:
            waiting = count_waiting(connection)
        if not rows and not waiting:
            raise UsageError("there is nothing to sync: add a folder with `kb add FOLDER`")
        with _engine(workers, tell) as engine:
            reports, has_failed = _sync_each(self, rows, progress, force=force)
            done = _embed(self, progress, WHOLE_FILE, engine) if embed else (EmbedReport(), "")
        return _results(self, reports, *done, has_failed=has_failed)

    def sources_to_confirm(self, names: Sequence[str] = ()) -> list[Reach]:
        """What `sync` would read outside the project that the user has not confirmed."""
        return unconfirmed(self.database, rows_to_sync(self, names))

    def confirm_sources(self, sources: Sequence[Reach]) -> None:
        """Let the file read these sources from now on."""
        confirm(self.database, sources)

    def move(
        self, name: str, folder: str, *, embed: bool = True, progress: Progress = no_progress
    ) -> SyncResults:
        """Change where the documents of a collection are, and sync it.

        Raises:
            SourceError: there is no such folder, or nothing in it can be read.
        """
        with self.database.read() as connection:
            row = self.names.collection(connection, name, ALL_KINDS)
        stored, _ = stored_source(folder)
        mark = self.database.mark
        mark.confirm_source(stored, is_private=mark.allows(row["source"], is_private=True))
        moved = MovedSource(row["name"], stored)
        report = sync_collection(self.database, moved, reads_ahead=True, progress=progress)
        within = _synced_range(self, report.collection)
        done = _embed(self, progress, within) if embed else (EmbedReport(), "")
        return _results(self, [report], *done)

    def remove(self, name: str, document: str | None = None, *, force: bool = False) -> Removed:
        """Remove a collection, or a document that a call added; sources stay as they are.

        Args:
            force: remove what exists only in this file.

        Raises:
            UsageError: it exists only in this file, or the next sync would bring it back.
        """
        if document is not None:
            return _remove_document(self, name, document)
        with self.database.read() as connection:
            row = self.names.collection(connection, name, ALL_KINDS)
            count = count_documents(connection, row["collection_id"])
        if count and not row["source"] and not force:
            raise UsageError(
                f'the documents of "{row["name"]}" ({count:,}) are nowhere but in this file, so '
                "they were not removed: keep a copy with `kb copy` first; `kb remove --help` says "
                "how to go on"
            )
        with self.database.write() as connection:
            delete_collection(connection, row["collection_id"])
        return Removed(collection=row["name"], documents=count)

    def embed(self, collection: str = "", *, progress: Progress = no_progress) -> Embedded:
        """Embed the passages of a collection, or of the whole file, that have no vector.

        Raises:
            EmbeddingError: the model cannot be used.
        """
        report = embed_pending(self.model, progress=progress, within=_range(self, collection))
        name = self.model.model_name()
        return Embedded(model=name, embedded=report.embedded, reused=report.reused)

    def passages_waiting(self, collection: str) -> int:
        """How many passages of a collection have no vector yet."""
        within = _range(self, collection)
        with self.database.read() as connection:
            return count_waiting(connection, within)

    def reembed(
        self,
        model: str = "",
        *,
        workers: str = "",
        tell: Tell = _silence,
        progress: Progress = no_progress,
    ) -> Embedded:
        """Embed everything with a model, by default the one that suits the documents.

        Searches use the old vectors until the end.

        Raises:
            EmbeddingError: the model cannot be used; nothing has changed.
        """
        embedder = self.model.make_embedder(model or self.model.suited_model())
        with _engine(workers, tell) as engine:
            report = embed_anew(self.model, embedder, progress=progress, engine=engine)
        return Embedded(model=embedder.name, embedded=report.embedded, reused=report.reused)


def _remove_document(base: Workspace, name: str, document: str) -> Removed:
    with base.database.read() as connection:
        row = base.names.collection(connection, name, ALL_KINDS)
        if row["kind"] == "discoveries":
            raise UsageError("a discovery is taken back with `kb forget ID`")
        if row["source"]:
            raise UsageError(
                f'"{row["name"]}" is read from {row["source"]}, so the document would be back with '
                "the next sync: remove its file, or leave it out with `kb add SOURCE --exclude`"
            )
        stored = base.names.document(connection, row, document, row["name"])
    with base.database.write() as connection:
        delete_document(connection, stored["document_id"])
        delete_unused_vectors(connection)
    return Removed(collection=row["name"], document=stored["path"])


@contextlib.contextmanager
def _engine(workers: str, tell: Tell) -> Iterator[Engine]:
    """Where the model runs: in this process, or on the workers of a Dask scheduler."""
    if not workers:
        yield THREADS
        return
    from kb.ingest.workers import DaskWorkers

    with DaskWorkers(workers, tell) as engine:
        yield engine


def _sync_each(
    base: Workspace,
    collections: Sequence[Row | SourceRegistration],
    progress: Progress,
    *,
    force: bool = False,
) -> tuple[list[SyncReport], bool]:
    """Sync collections, and whether one failed: a missing folder must not stop the others."""
    reports: list[SyncReport] = []
    has_failed = False
    for collection in collections:
        try:
            report = sync_collection(
                base.database, collection, force=force, reads_ahead=True, progress=progress
            )
        except (SourceError, CollectionNotFound) as error:
            if isinstance(collection, SourceRegistration) and len(collections) == 1:
                raise
            has_failed, report = True, _failed(collection, error)
        reports.append(report)
    return reports, has_failed


def _failed(collection: Row | SourceRegistration, error: KbError) -> SyncReport:
    hint = ""
    if isinstance(collection, SourceRegistration):
        name = collection.default_name
    else:
        name, source = collection["name"], collection["source"]
        if not is_remote(source) and not local(source).exists():
            hint = f" `kb move {name} FOLDER` says where it is now."
    report = SyncReport(name)
    report.fail("", error.message + hint)
    return report


def _range(base: Workspace, name: str) -> ChunkRange:
    if not name:
        return WHOLE_FILE
    with base.database.read() as connection:
        return collection_range(base.names.collection(connection, name, ALL_KINDS)["collection_id"])


def _synced_range(base: Workspace, name: str) -> ChunkRange:
    """The chunks of a collection by its own name, which no alias hides."""
    with base.database.read() as connection:
        return collection_range(find_collection_id(connection, name) or 0)


def _embed(
    base: Workspace, progress: Progress, within: ChunkRange, engine: Engine = THREADS
) -> tuple[EmbedReport, str]:
    """Embed what waits in a range of the file; what went wrong, or ""."""
    try:
        report = embed_pending(base.model, progress=progress, within=within, engine=engine)
    except EmbeddingError as error:
        return EmbedReport(), error.message
    return report, ""


def _results(
    base: Workspace,
    reports: Sequence[SyncReport],
    embedded: EmbedReport,
    error: str,
    notice: str = "",
    has_failed: bool = False,
) -> SyncResults:
    if error:
        notice = f"searches use keywords alone: {error}"
    has_vectors = embedded.embedded or embedded.reused
    return SyncResults(
        collections=[SyncedCollection(**asdict(report)) for report in reports],
        embedded=embedded.embedded,
        reused=embedded.reused,
        notice=notice or None,
        model=base.model.model_name() if has_vectors else "",
        embedding_error=error,
        has_failed=has_failed,
    )
