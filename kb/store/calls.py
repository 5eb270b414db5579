"""The log of tool calls: name, outcome, duration and size, never their content."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any

from kb.errors import FileError
from kb.store.connection import Connection, Row
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
        call = {
            "tool": tool,
            "code": code,
            "duration_ms": round(milliseconds, 3),
            "result_characters": characters,
            "called_at": utc_now(),
        }
        with self._lock:
            self._waiting.append(call)
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


def logged_calls(connection: Connection) -> list[Row]:
    """The newest 10,000 calls of a file: tool, code of the error, milliseconds."""
    return connection.rows("tool_call_durations")


def call_statistics(calls_of_files: Iterable[Sequence[Row]]) -> list[dict[str, Any]]:
    """One row a tool, of the calls that some files have logged; times in milliseconds."""
    rows = sorted(chain(*calls_of_files), key=lambda row: (row["tool"], row["duration_ms"]))
    statistics = []
    for tool, group in groupby(rows, key=lambda row: row["tool"]):
        calls = list(group)
        durations = [call["duration_ms"] for call in calls]
        errors = Counter(call["code"] for call in calls if call["code"])
        statistics.append(
            {
                "tool": tool,
                "calls": len(calls),
                "successRate": round(1 - errors.total() / len(calls), 4),
                **{f"p{share}": percentile(durations, share / 100) for share in (50, 95, 99)},
                "errors": dict(sorted(errors.items())),
            }
        )
    return statistics


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
