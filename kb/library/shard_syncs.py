"""Syncs of a file, or of all its shards side by side with one writer each (`kb/ingest/cut.py`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kb.errors import CollectionNotFound, EmbeddingError, KbError, SourceError
from kb.ingest.embed import THREADS, EmbedReport, embed_pending
from kb.ingest.engine import Engine
from kb.ingest.registration import Registration, SourceRegistration
from kb.ingest.report import Progress, SyncReport
from kb.ingest.sync import sync_collection
from kb.library.workspace import Workspace
from kb.models.embedder import available_cores
from kb.sources.address import is_remote, local
from kb.store.collections import shard_of
from kb.store.connection import Row
from kb.store.contents import ChunkRange


def of_shard(base: Workspace, registration: SourceRegistration) -> SourceRegistration:
    """What becomes of a source in a shard: it is there even while none of its documents is."""
    with base.database.read() as connection:
        shard = shard_of(connection)
    if shard is None:
        return registration
    settings = {**registration.settings, "shard": shard}
    return replace(registration, settings=settings, keeps_empty=True)


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
