"""Keep the collections of folders in line while a server runs, a second of embedding at a time."""

from __future__ import annotations

import logging
import time
from functools import partial

from kb.disk.watch import FolderWatcher
from kb.errors import KbError
from kb.ingest.embed import embed_pending
from kb.ingest.progress import Progress, no_progress
from kb.ingest.sync import sync_collection
from kb.knowledge_base import KnowledgeBase
from kb.model_in_use import ModelInUse
from kb.sources.address import local
from kb.store.ids import collection_range

log = logging.getLogger("kb.follow")

# A follower embeds for this long before it looks for further changes.
SLICE_SECONDS = 1.0
FOLLOWED_KINDS = ("documents", "archive")  # external docs are followed by their activation


def follow_folders(knowledge: KnowledgeBase, model: ModelInUse) -> list[FolderWatcher]:
    """Watch every collection's folder; who gets the watchers stops them."""
    watchers = []
    with knowledge.database.read() as connection:
        rows = knowledge.names.collections(connection, FOLLOWED_KINDS)
    for row in rows:
        folder = local(row["source"])
        if row["source"] and folder.is_dir():
            watcher = FolderWatcher(
                folder,
                partial(_refresh, knowledge, model, row["collection_id"]),
                knowledge.database.path,
            )
            watchers.append(watcher)
            watcher.start()
    return watchers


def embed_for(
    model: ModelInUse, collection_id: int, seconds: float, progress: Progress = no_progress
) -> bool:
    """Embed a collection for about so long. Returns whether some of it still waits.

    Raises:
        EmbeddingError: the model cannot be used.
    """
    deadline = time.monotonic() + seconds
    report = embed_pending(
        model,
        progress=progress,
        within=collection_range(collection_id),
        should_stop=lambda: time.monotonic() > deadline,
    )
    return report.waiting > 0


def _refresh(knowledge: KnowledgeBase, model: ModelInUse, collection_id: int) -> bool:
    """Sync one collection; returns whether something is left to do."""
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
