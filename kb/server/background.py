"""Vectors for what tool calls added, while nobody waits for anything."""

from __future__ import annotations

import logging
import threading
import time

from kb.errors import EmbeddingError, FileError
from kb.store.collections import all_collections
from kb.store.ids import collection_range
from kb.tools.session import Session

log = logging.getLogger("kb.background")

START_SECONDS = 5.0  # in which the client gets its first answers
IDLE_SECONDS = 0.5  # without a call before embedding begins
MOST_PATIENCE = 10.0  # seconds of calls without a pause, after which one batch is embedded


def start_embedding(session: Session) -> None:
    """Embed added documents from now on, in a thread that the end of the process need not wait for.

    A transaction that the end cuts off is rolled back, and its chunks wait for the next run.
    """
    session.activity.note_addition()  # what an earlier process left waiting
    threading.Thread(target=_run, args=[session], name="embedding", daemon=True).start()


def embed_added(session: Session, *, give_way: bool = False) -> None:
    """Embed what waits in named indexes and archives. Other folders that were synced without
    vectors wait on.

    Args:
        give_way: stop as soon as a tool is called; the rest waits for the next run.

    Raises:
        EmbeddingError: the model cannot be used.
    """
    from kb.ingest.embed import embed_pending  # here: not before the first reply

    session.activity.take_additions()
    began = time.monotonic()
    for model in session.models:
        with model.database.read() as connection:
            rows = [
                row for row in all_collections(connection) if row["kind"] in ("index", "archive")
            ]
        for row in rows:
            report = embed_pending(
                model,
                within=collection_range(row["collection_id"]),
                should_stop=lambda: give_way and session.activity.last_call > began,
            )
            if report.waiting:
                session.activity.note_addition()
                return


def _run(session: Session) -> None:
    time.sleep(START_SECONDS)
    while True:
        session.activity.wait_for_addition()
        patience = time.monotonic() + MOST_PATIENCE
        while time.monotonic() < min(session.activity.last_call + IDLE_SECONDS, patience):
            time.sleep(IDLE_SECONDS / 5)
        try:
            embed_added(session, give_way=True)
        except EmbeddingError as error:
            log.warning("added documents are found by keywords alone: %s", error.message)
        except FileError as error:
            # Closed, or busy or full: what waits is embedded after the next call that adds.
            log.info("embedding added documents stopped: %s", error.message)
        except Exception:
            log.exception("embedding added documents failed")
