"""Vectors for what tool calls added, made while the server is idle."""

from __future__ import annotations

import logging
import threading
import time

from kb.errors import EmbeddingError, FileError
from kb.tools.session import Session

log = logging.getLogger("kb.background")

START_SECONDS = 5.0  # in which the client gets its first answers
IDLE_SECONDS = 0.5  # without a call before embedding begins
MOST_PATIENCE = 10.0  # seconds of calls without a pause, after which one batch is embedded


def start_embedding(session: Session) -> None:
    """Embed added documents from now on, in a thread that does not delay the process's end.

    The end rolls back an open transaction, whose chunks wait for the next run.
    """
    session.activity.added.set()  # what an earlier process left waiting
    threading.Thread(target=_run, args=[session], name="embedding", daemon=True).start()


def embed_added(session: Session, *, give_way: bool = False) -> None:
    """Embed what waits in named indexes and archives, not in folders synced without vectors; to
    `give_way`, stop when a tool is called. Raises EmbeddingError if the model cannot be used."""
    session.activity.added.clear()
    began = time.monotonic()
    if session.base.embed_added(lambda: give_way and session.activity.last_call > began):
        session.activity.added.set()


def _run(session: Session) -> None:
    time.sleep(START_SECONDS)
    while True:
        session.activity.added.wait()
        patience = time.monotonic() + MOST_PATIENCE
        while time.monotonic() < min(session.activity.last_call + IDLE_SECONDS, patience):
            time.sleep(IDLE_SECONDS / 5)
        try:
            embed_added(session, give_way=True)
        except EmbeddingError as error:
            log.warning("added documents are found by keywords alone: %s", error.message)
        except FileError as error:
            # Closed, busy or full: what waits is embedded after the next call that adds.
            log.info("embedding added documents stopped: %s", error.message)
        except Exception:
            log.exception("embedding added documents failed")
