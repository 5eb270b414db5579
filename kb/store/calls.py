"""The log of tool calls in the file: name, outcome, duration, size; never their content."""

from __future__ import annotations

import threading
from typing import Any

from kb.errors import FileError
from kb.store.database import Database
from kb.text.times import utc_now

MOST_WAITING = 1000


class CallLog:
    """Collects calls in memory and writes them together, so that no call waits for the disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, tool: str, code: str, milliseconds: float, characters: int) -> None:
        """Count one call; `code` is "" for success."""
        with self._lock:
            self._waiting.append(
                {
                    "tool": tool,
                    "code": code,
                    "duration_ms": round(milliseconds, 3),
                    "result_characters": characters,
                    "called_at": utc_now(),
                }
            )
            del self._waiting[:-MOST_WAITING]

    def flush(self) -> None:
        """Write what waits. A file that cannot be written now loses counts, never a call."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting or self._database.read_only:
            return
        try:
            with self._database.write() as connection:
                connection.run_many("insert_tool_call", waiting)
                connection.run("trim_tool_calls")
        except FileError:
            with self._lock:
                self._waiting = waiting + self._waiting
