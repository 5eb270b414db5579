"""Collections of folders and archives, kept in line with these while a server runs.

An archive is registered where the environment names it. What is embedded takes a second at a time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kb.disk.watch import FolderWatcher
from kb.errors import KbError, SourceError
from kb.formats.metadata import RESEARCH, URL_CONTENT
from kb.ingest.embed import embed_pending
from kb.ingest.reach import unconfirmed
from kb.ingest.registration import SourceRegistration
from kb.ingest.report import Progress, SyncReport, no_progress
from kb.ingest.sync import CAPTURES_VARIABLE, sync_collection
from kb.model_in_use import ModelInUse
from kb.open_file import OpenFile
from kb.sources.address import local
from kb.store.collections import all_collections, finish_sync, shard_of
from kb.store.connection import Row
from kb.store.contents import collection_range
from kb.store.database import Database
from kb.text.file_names import storable

log = logging.getLogger("kb.follow")

SLICE_SECONDS = 1.0  # of embedding, until a follower looks for further changes
FOLLOWED_KINDS = ("documents", "archive")  # external docs are followed by their activation
VARIABLES = {"RESEARCH_ARCHIVE_PATH": RESEARCH, CAPTURES_VARIABLE: URL_CONTENT}


def follow_folders(knowledge: OpenFile, model: ModelInUse) -> list[FolderWatcher]:
    """Watch every collection's folder; the caller stops the watchers."""
    watchers = []
    with knowledge.database.read() as connection:
        rows = knowledge.names.collections(connection, FOLLOWED_KINDS)
    for row in rows:
        name, folder = row["name"], local(row["source"])
        if unconfirmed(knowledge.database, [row]):
            message = "%s is not followed: `kb trust %s` lets it read %s"
            log.warning(message, name, name, folder)
        elif row["source"] and folder.is_dir():
            refresh = partial(_refresh, knowledge, model, row["collection_id"])
            watchers.append(FolderWatcher(folder, refresh, knowledge.database.path))
            watchers[-1].start()
    return watchers


def embed_for(
    model: ModelInUse, collection_id: int, seconds: float, progress: Progress = no_progress
) -> bool:
    """Embed a collection for some seconds; whether some still waits. Raises EmbeddingError."""
    deadline = time.monotonic() + seconds
    report = embed_pending(
        model,
        progress=progress,
        within=collection_range(collection_id),
        should_stop=lambda: time.monotonic() > deadline,
    )
    return report.waiting > 0


def _refresh(knowledge: OpenFile, model: ModelInUse, collection_id: int) -> bool:
    """Sync one collection; whether something is left to do."""
    with knowledge.sync_lock:
        with knowledge.database.read() as connection:
            # Read anew: it may have been removed or changed since.
            rows = knowledge.names.collections(connection, FOLLOWED_KINDS)
        for row in rows:
            if row["collection_id"] == collection_id and row["source"]:
                try:
                    sync_collection(knowledge.database, row)
                    return embed_for(model, collection_id, SLICE_SECONDS)
                except KbError as error:
                    log.warning("%s could not be synced: %s", row["name"], error.message)
    return False


def sync_configured_archives(
    knowledge: OpenFile, more: Mapping[str, tuple[Path, str]] | None = None
) -> bool:
    """Register and sync the archives of the environment and of the project that are new.

    A missing folder is an error only when nothing of it is stored: a copied file works without
    its sources. Returns whether one was synced just now, so that vectors may be missing.

    Args:
        more: by what names it, further folders and what they hold.

    Raises SourceError if a variable names a folder that is not there.
    """
    database = knowledge.database
    if database.read_only:
        return False
    with database.read() as connection:
        shard = shard_of(connection)
    has_synced = False
    configured = {
        variable: (Path(value).expanduser().resolve(), source)
        for variable, source in VARIABLES.items()
        if (value := os.environ.get(variable))
    }
    for variable, (root, source) in {**configured, **(more or {})}.items():
        stored = storable(root)
        if root.is_dir() and not database.mark.allows(stored):
            database.mark.confirm_source(stored)  # the environment or the project names it
        if _is_stored(database, stored):
            continue
        if not root.is_dir():
            raise SourceError(f"{variable} names {root}, which is not a folder", path=str(root))
        with knowledge.sync_lock:
            if not _is_stored(database, stored):  # by another call, meanwhile
                name, settings = (
                    storable(root.name),
                    {"source": source, **({"shard": shard} if shard else {})},
                )
                archive = SourceRegistration(
                    stored, name, kind="archive", settings=settings, keeps_empty=True
                )
                _sync(database, archive)
                has_synced = True
    return has_synced


def sync_changed_archive(knowledge: OpenFile, row: Row) -> None:
    """Sync a changed archive and note the end, so that the next process need not."""
    with knowledge.sync_lock:
        try:
            report = _sync(knowledge.database, row)
        except KbError as error:
            log.warning("%s could not be synced: %s", row["name"], error.message)
            return
    if report.added or report.updated:
        knowledge.additions.set()
    elif not report.removed:
        with knowledge.database.write() as connection:
            finish_sync(connection, row["collection_id"])


def _sync(database: Database, collection: Row | SourceRegistration) -> SyncReport:
    report = sync_collection(database, collection)
    for problem in report.errors:
        log.warning("%s: %s: %s", report.collection, problem["path"], problem["message"])
    return report


def _is_stored(database: Database, source: str) -> bool:
    with database.read() as connection:
        return any(row["source"] == source for row in all_collections(connection))
