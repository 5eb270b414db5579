"""What goes into the file and out of it: sources added and synced, passages embedded, removals.

Shards (`kb/ingest/copying.py`) are synced side by side, with one writer each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kb.disk.git import git_branch
from kb.errors import CollectionNotFound, EmbeddingError, KbError, SourceError, UsageError
from kb.formats.convert.formats import INSTALL_OCR, can_recognise
from kb.ingest.embed import THREADS, EmbedReport, embed_pending, reembed as embed_anew
from kb.ingest.engine import Engine
from kb.ingest.reach import confirm, unconfirmed
from kb.ingest.registration import MovedSource, Registration, SourceRegistration
from kb.ingest.report import Progress, SyncReport, no_progress
from kb.ingest.sync import sync_collection
from kb.library.workspace import Workspace
from kb.models.embedder import available_cores
from kb.results.care import Embedded, Removed, SyncedCollection, SyncResults
from kb.results.findings import Reach
from kb.sources.address import (
    git_address,
    is_git,
    is_remote,
    is_web,
    local,
    name_of,
    typed_path,
    web_address,
)
from kb.sources.folder import SecretFile, SourceFile, read, secret_root
from kb.store.collections import ALL_KINDS, Names, all_collections, find_collection_id, shard_of
from kb.store.connection import Connection, Row
from kb.store.contents import (
    WHOLE_FILE,
    ChunkRange,
    collection_range,
    count_documents,
    count_waiting,
)
from kb.store.database import Database
from kb.store.documents import delete_collection, delete_document
from kb.store.mark import Mark
from kb.store.projects import all_projects
from kb.store.vectors import delete_unused_vectors
from kb.text.counted import as_texts
from kb.text.file_names import on_disk, storable

Tell = Callable[[str], None]


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
            with base.database.read() as connection:
                shard = shard_of(connection)
            registrations = [
                register(
                    *(base.database, os.fspath(source)),
                    name=name,
                    kind=kind,
                    include=as_texts(include),
                    exclude=as_texts(exclude),
                    description=description,
                    settings={**(settings or {}), **({"shard": shard} if shard else {})},
                    keeps_empty=bool(shard),  # there even while the shard has no document of it
                )
                for source in sources
            ]
            unique = {registration.source: registration for registration in registrations}
            shards.append((base, [*unique.values()]))
        if embed:
            self.model.require_chosen()  # before anything is read
        reports, has_failed = sync_shards(shards, progress)
        stored = [report.collection for report in reports if embed and report.is_stored]
        total, error = embed_each(
            [(base, _synced_range(base, name)) for base, _ in shards for name in stored], progress
        )
        notice = self.lost
        if total.embedded and (model := self.model.better_model()):
            notice += (
                f"{' ' if notice else ''}the languages of the documents suit another model than "
                f"the file's {self.model.model_name()}: `kb reembed --model {model}` finds more"
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
        if len(self.shards_here) > 1:
            return Collecting.add(self, source, embed=False, progress=progress).collections[0]
        report = sync_collection(self.database, registration, reads_ahead=True, progress=progress)
        return SyncedCollection(**asdict(report))

    def sync(
        self,
        names: Sequence[str] = (),
        *,
        force: bool = False,
        embed: bool = True,
        workers: str = "",
        tell: Tell = lambda _: None,
        progress: Progress = no_progress,
    ) -> SyncResults:
        """Bring collections, by default all, in line with their sources; embed all that waits.

        Args:
            force: read every file again, and let an empty folder empty its collection.

        Raises:
            UsageError: there is nothing to sync, or a collection has no source.
        """
        shards = rows_of_shards(self, names)
        with self.database.read() as connection:
            waiting = count_waiting(connection)
        if not shards[0][1] and not waiting:
            raise UsageError("there is nothing to sync: add a folder with `kb add FOLDER`")
        with _engine(workers, tell) as engine:
            reports, has_failed = sync_shards(shards, progress, force=force)
            files = [(base, WHOLE_FILE) for base, _ in shards if embed]
            done = embed_each(files, progress, engine)
        return _results(self, reports, *done, self.lost, has_failed)

    def sources_to_confirm(self, names: Sequence[str] = ()) -> list[Reach]:
        """What `sync` would read outside the project that the user has not confirmed."""
        reaches = (unconfirmed(base.database, rows) for base, rows in rows_of_shards(self, names))
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
        total = EmbedReport()
        for base, within in _ranges(self, collection):
            total.include(embed_pending(base.model, progress=progress, within=within))
        name = self.model.model_name()
        return Embedded(model=name, embedded=total.embedded, reused=total.reused)

    def passages_waiting(self, collection: str) -> int:
        """How many passages of a collection have no vector yet."""
        count = 0
        for base, within in _ranges(self, collection):
            with base.database.read() as connection:
                count += count_waiting(connection, within)
        return count

    def reembed(
        self,
        model: str = "",
        *,
        workers: str = "",
        tell: Tell = lambda _: None,
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


def _engine(workers: str, tell: Tell) -> AbstractContextManager[Engine]:
    """Where the model runs: in this process, or on the workers of a Dask scheduler."""
    if not workers:
        return nullcontext(THREADS)
    from kb.ingest.engine import DaskWorkers

    return DaskWorkers(workers, tell)


def _ranges(base: Workspace, name: str) -> list[tuple[Workspace, ChunkRange]]:
    """The chunks of a collection in each shard, by its name or an alias; of all for ""."""
    if not name:
        return [(shard, WHOLE_FILE) for shard in base.shards_here]
    with base.database.read() as connection:
        stored = base.names.collection(connection, name, ALL_KINDS)["name"]
    return [(shard, _synced_range(shard, stored)) for shard in base.shards_here]


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


def sync_shards(
    shards: Sequence[tuple[Workspace, Sequence[Row | Registration]]],
    progress: Progress,
    *,
    force: bool = False,
) -> tuple[list[SyncReport], bool]:
    """As `_sync_each`, for each shard, side by side; a collection has one report."""
    if len(shards) == 1:
        return _sync_each(*shards[0], progress, force=force)
    stop = threading.Event()
    counts = [(0, 0)] * len(shards)

    def sync(number: int) -> tuple[list[SyncReport], bool]:
        def show(stage: str, done: int, total: int) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            counts[number] = done, total
            progress(stage, *map(sum, zip(*counts, strict=True)))

        return _sync_each(*shards[number], show, force=force)

    reports: dict[str, SyncReport] = {}
    has_failed = False
    with ThreadPoolExecutor(available_cores()) as pool:
        try:
            for part, failed in pool.map(sync, range(len(shards))):
                has_failed |= failed
                for report in part:
                    whole = reports.setdefault(report.collection, SyncReport(report.collection))
                    whole.include(report)
        except BaseException:
            stop.set()
            raise
    return [*reports.values()], has_failed


def _sync_each(
    base: Workspace,
    collections: Sequence[Row | Registration],
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
            if isinstance(collection, Registration) and len(collections) == 1:
                raise
            has_failed, report = True, _failed(collection, error)
        reports.append(report)
    return reports, has_failed


def _failed(collection: Row | Registration, error: KbError) -> SyncReport:
    hint = ""
    if not isinstance(collection, dict):
        name = getattr(collection, "default_name", "")
    else:
        name, source = collection["name"], collection["source"]
        if not is_remote(source) and not local(source).exists():
            hint = f" `kb move {name} FOLDER` says where it is now."
    report = SyncReport(name)
    report.fail("", error.message + hint)
    return report


def embed_each(
    files: Sequence[tuple[Workspace, ChunkRange]], progress: Progress, engine: Engine = THREADS
) -> tuple[EmbedReport, str]:
    """Embed what waits in ranges of files, one after the other; why that could not be done."""
    total = EmbedReport()
    for base, within in files:
        try:
            report = embed_pending(base.model, progress=progress, within=within, engine=engine)
        except EmbeddingError as error:
            return total, error.message
        total.include(report)
    return total, ""


def register(database: Database, source: str, **fields: Any) -> SourceRegistration:
    """What becomes of a source that is added, with more `fields` of it; its sync stores it.

    Raises:
        SourceError: there is no such folder.
        UsageError: the name is blank or taken, the source secret, an address malformed, or text
            recognition not installed.
    """
    settings = fields.get("settings", {})
    if not can_recognise(settings.get("ocr", "")):
        raise UsageError(f"text recognition needs what `{INSTALL_OCR}` adds")
    if (name := fields.get("name")) is not None and not name.strip():
        raise UsageError("a collection's name must not be blank")
    registration = SourceRegistration(*stored_source(source), **fields)
    with database.read() as connection:
        registration.plan(connection)
    is_private = bool(settings.get("allow_private"))
    database.mark.confirm_source(registration.source, is_private=is_private)
    return registration


def stored_source(source: str) -> tuple[str, str]:
    """How a source is stored, and its default name."""
    if is_git(source):
        repository = git_address(source)
        return repository.stored, repository.name
    if is_web(source):
        address = web_address(source)
        return address, name_of(address)
    if is_remote(source):
        raise UsageError(f"{source} is not a kind of source: see `kb add --help`")
    root = typed_path(source)
    if not (root.is_dir() or root.is_file()):
        raise SourceError(f"there is no folder or file {source}", path=str(root))
    if why := secret_root(root) or _private_key(root):
        raise UsageError(f"{source} is not added, since secrets are never stored: {why}")
    # A link keeps the name that was typed, not that of its target.
    typed = Path(source).expanduser().name
    name = root.name if typed in ("", ".", "..") or source.lower().startswith("file:") else typed
    return storable(root), storable(name)


def _private_key(root: Path) -> str:
    if root.is_file():
        try:
            read(SourceFile(root.name, root, 0, 0))
        except SecretFile:
            return "it is a private key"
        except SourceError:
            pass  # the sync reports it
    return ""


def rows_to_sync(workspace: Workspace, names: Sequence[str]) -> list[Row]:
    """The named collections, or all that have a source. Raises CollectionNotFound, or UsageError if
    one has no source, or belongs to another branch of a project than the one checked out."""
    with workspace.database.read() as connection:
        if names:
            rows = [
                workspace.names.collection(connection, name, ALL_KINDS) for name in as_texts(names)
            ]
            for row in rows:
                _require_branch(connection, row)
        else:
            # A project's external docs are synced by its activation, on its branch at that time.
            rows = [
                row
                for row in workspace.names.collections(connection, ALL_KINDS)
                if row["source"] and row["project_id"] is None
            ]
    for row in rows:
        if not row["source"]:
            raise UsageError(
                f'the collection "{row["name"]}" is filled by tool calls and has no source to sync '
                "from"
            )
    return rows


def rows_of_shards(base: Workspace, names: Sequence[str]) -> list[tuple[Workspace, list[Row]]]:
    """The `rows_to_sync` of each shard, of which only the first has every collection."""
    first, *others = base.shards_here
    shards = [(first, rows_to_sync(first, names))]
    chosen = {row["name"] for row in shards[0][1]}
    for other in others:
        with other.database.read() as connection:
            rows = [row for row in all_collections(connection) if row["name"] in chosen]
        shards.append((other, rows))
    return shards


def _require_branch(connection: Connection, row: Row) -> None:
    """Refuse to fill a project's external docs with the files of another branch."""
    for project in all_projects(connection):
        root, branch = Path(on_disk(project["root"])), project["branch"]
        if project["project_id"] != row["project_id"] or not root.is_dir():
            continue
        if (checked_out := git_branch(root)) != branch:
            raise UsageError(
                f'the collection "{row["name"]}" holds the branch {branch}, and {checked_out} is '
                f"checked out in {root}: check out {branch}, or activate the project"
            )


def trust(files: Sequence[Path], names: Sequence[str]) -> list[Reach]:
    """Let the collections of a file, by default all, read their sources; returns these.

    Args:
        files: the file; of those behind it, the shards of a file that was cut count as well.
    """
    confirmed: dict[Reach, None] = {}
    for file in files:
        is_first = file == files[0]
        if is_first and not names:
            Mark(file).confirm_file()  # before it is opened, which its tables may forbid
        with Database(file, create=False) as database:
            with database.read() as connection:
                if not is_first and shard_of(connection) is None:
                    continue
                rows = all_collections(connection)
                if names and is_first:
                    rows = [Names({}).collection(connection, name, ALL_KINDS) for name in names]
                elif names:  # only the first has every collection
                    rows = [row for row in rows if row["name"] in names]
            if not (is_first or names):
                database.mark.confirm_file()
            reaches = unconfirmed(database, rows)
            confirm(database, reaches)
            confirmed.update(dict.fromkeys(reaches))
    return [*confirmed]
