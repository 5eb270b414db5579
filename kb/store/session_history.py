"""What is stored of sessions: to be shown, and to be taken back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kb.store.connection import Connection, Row


def newest_sessions(connection: Connection, limit: int) -> list[Row]:
    """The newest sessions with the numbers of what happened in each."""
    return connection.rows("recent_sessions", limit=limit)


def files_of_session(connection: Connection, session_id: str, limit: int) -> list[Row]:
    """The files a session read, most often read first."""
    return connection.rows("session_files", session_id=session_id, limit=limit)


def details_of_session(
    connection: Connection, session_id: str, kind: str, limit: int
) -> list[dict[str, Any]]:
    """The newest events of a session of one kind: "query" or "discovery"."""
    return connection.rows("session_details", session_id=session_id, kind=kind, limit=limit)


def all_details(connection: Connection) -> list[tuple[int, str]]:
    """Every question, path and id of a discovery that is noted of sessions, by event."""
    return connection.tuples("all_session_details")


def delete_events(connection: Connection, event_ids: Sequence[int]) -> None:
    """Take back what is noted of sessions."""
    connection.run("delete_session_events", session_event_ids=json.dumps(list(event_ids)))
