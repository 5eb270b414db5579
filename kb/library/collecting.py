"""What goes into the file and out of it: sources added and synced, passages embedded, removals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kb.errors import UsageError
from kb.ingest.embed import THREADS, EmbedReport, embed_pending, reembed as embed_anew
from kb.ingest.engine import Engine
from kb.ingest.reach import confirm, unconfirmed
from kb.ingest.registration import MovedSource, SourceRegistration
from kb.ingest.report import Progress, SyncReport, no_progress
from kb.ingest.sync import sync_collection
from kb.library.shard_syncs import embed_each, of_shard, sync_shards
from kb.library.sources import register, rows_to_sync, stored_source
from kb.library.workspace import Workspace
from kb.results.care import Embedded, Removed, SyncedCollection, SyncResults
from kb.results.findings import Reach
from kb.store.collections import ALL_KINDS, find_collection_id
from kb.store.contents import (
    WHOLE_FILE,
    ChunkRange,
    collection_range,
    count_documents,
    count_waiting,
)
from kb.store.documents import delete_collection, delete_document
from kb.store.vectors import delete_unused_vectors

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
        shards: list[tuple[Collecting, Sequence[SourceRegistration]]] = []
        for base in self.shards_here:
            registrations = {}
            for source in [os.fspath(source) for source in sources]:
                registration = register(
                    *(base.database, source),
                    name=name,
                    kind=kind,
                    include=include,
                    exclude=exclude,
                    description=description,
                    settings=settings,
                )
                registrations[registration.source] = of_shard(base, registration)
            shards.append((base, [*registrations.values()]))
        if embed:
            self.model.require_chosen()  # before anything is read
        reports, has_failed = sync_shards(shards, progress)
        stored = [report.collection for report in reports if embed and report.is_stored]
        total, error = embed_each(
            [(base, _synced_range(base, name)) for base, _ in shards for name in stored], progress
        )
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
        shards = [(base, rows_to_sync(base, names)) for base in self.shards_here]
        with self.database.read() as connection:
            waiting = count_waiting(connection)
        if not shards[0][1] and not waiting:
            raise UsageError("there is nothing to sync: add a folder with `kb add FOLDER`")
        with _engine(workers, tell) as engine:
            reports, has_failed = sync_shards(shards, progress, force=force)
            files = [(base, WHOLE_FILE) for base, _ in shards if embed]
            done = embed_each(files, progress, engine)
        notice = self.missing_shards
        return _results(self, reports, *done, notice, has_failed)

    def sources_to_confirm(self, names: Sequence[str] = ()) -> list[Reach]:
        """What `sync` would read outside the project that the user has not confirmed."""
        reaches = (
            unconfirmed(base.database, rows_to_sync(base, names)) for base in self.shards_here
        )
        return list(dict.fromkeys(reach for part in reaches for reach in part))

    def confirm_sources(self, sources: Sequence[Reach]) -> None:
        """Let the file read these sources from now on."""
        for base in self.shards_here:
            confirm(base.database, sources)

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
        moved = MovedSource(row["name"], stored)
        shards = [(base, [moved]) for base in self.shards_here]
        for base, _ in shards:
            mark = base.database.mark
            mark.confirm_source(stored, is_private=mark.allows(row["source"], is_private=True))
        reports, _ = sync_shards(shards, progress)
        files = [(base, _synced_range(base, row["name"])) for base, _ in shards if embed]
        return _results(self, reports, *embed_each(files, progress))

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
        count = 0
        for base in reversed(self.shards_here):  # the first, which has all names, last
            with base.database.write() as connection:
                if collection_id := find_collection_id(connection, row["name"]):
                    count += count_documents(connection, collection_id)
                    delete_collection(connection, collection_id)
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
        total = EmbedReport()
        with _engine(workers, tell) as engine:
            for base in self.shards_here:
                total.include(embed_anew(base.model, embedder, progress=progress, engine=engine))
        return Embedded(model=embedder.name, embedded=total.embedded, reused=total.reused)


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


def _range(base: Workspace, name: str) -> ChunkRange:
    if not name:
        return WHOLE_FILE
    with base.database.read() as connection:
        return collection_range(base.names.collection(connection, name, ALL_KINDS)["collection_id"])


def _synced_range(base: Workspace, name: str) -> ChunkRange:
    """The chunks of a collection by its own name, which no alias hides."""
    with base.database.read() as connection:
        return collection_range(find_collection_id(connection, name) or 0)


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
