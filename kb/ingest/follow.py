"""Keep the collections of folders in line while a server runs, a second of embedding at a time."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from kb.disk.watch import FolderWatcher
from kb.errors import KbError
from kb.ingest.embed import Progress, embed_pending, no_progress
from kb.ingest.sync import sync_collection
from kb.knowledge_base import KnowledgeBase
from kb.search.hybrid import collection_range
from kb.text.file_names import on_disk

log = logging.getLogger("kb.follow")

# A follower embeds for this long before it looks for further changes.
SLICE_SECONDS = 1.0
FOLLOWED_KINDS = ("documents", "archive")  # external docs are followed by their activation


def follow_folders(kb: KnowledgeBase) -> None:
    """Watch every collection's folder. Ends with the knowledge base."""
    with kb.database.read() as connection:
        rows = kb.collections(connection, FOLLOWED_KINDS)
    for row in rows:
        folder = Path(on_disk(row["source"]))
        if row["source"] and folder.is_dir():
            watcher = FolderWatcher(
                folder,
                lambda collection_id=row["collection_id"]: _refresh(kb, collection_id),  # type: ignore[misc]
                kb.database.path,
            )
            kb.background.append(watcher.stop)
            watcher.start()


def embed_for(
    kb: KnowledgeBase, collection_id: int, seconds: float, progress: Progress = no_progress
) -> bool:
    """Embed a collection for about so long. Returns whether some of it still waits.

    Raises:
        EmbeddingError: the model cannot be used.
    """
    deadline = time.monotonic() + seconds
    report = embed_pending(
        kb,
        progress=progress,
        within=collection_range(collection_id),
        should_stop=lambda: time.monotonic() > deadline,
    )
    return report.waiting > 0


def _refresh(kb: KnowledgeBase, collection_id: int) -> bool:
    """Sync one collection; returns whether something is left to do."""
    with kb.sync_lock:
        with kb.database.read() as connection:
            # Read anew: it may have been removed or changed since.
            rows = kb.collections(connection, FOLLOWED_KINDS)
        for row in rows:
            if row["collection_id"] == collection_id and row["source"]:
                try:
                    sync_collection(kb, row)
                    return embed_for(kb, collection_id, SLICE_SECONDS)
                except KbError as error:
                    log.warning("%s could not be synced: %s", row["name"], error.message)
    return False
