"""What clients did: calls, sessions, and which files matter; collected in memory, written together.

The log of calls has a tool's name, outcome, duration and size, never the content.

A file's score is 0.6 x recency + 0.4 x access: recency falls from 1 to 0 in 30 days, access is
the share of the most read file's count. The best files that fit into the context budget are
active, the others archived: they are not listed as key files, and still found.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from typing import Any, NamedTuple

from kb.errors import FileError
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.text.times import parse_time, stored_time

IDLE = timedelta(minutes=30)
RECENCY_DAYS = 30
RECENCY_WEIGHT, ACCESS_WEIGHT = 0.6, 0.4
CONTEXT_BUDGET_TOKENS = 100_000
MOST_WAITING = 1000
LONGEST_DETAIL = 500
QUERY_PARAMETERS = ("query", "pattern")


class FileScore(NamedTuple):
    path: str
    module: str
    score: float  # 0 to 1
    access_count: int
    last_accessed_at: str
    token_count: int
    is_archived: bool


class _Session:
    """One row of `sessions`: its attributes are the columns. No dataclass: searches load none."""

    def __init__(self, session_id: str, client: str, started_at: str, last_active_at: str) -> None:
        self.session_id = session_id
        self.client = client
        self.started_at = started_at
        self.last_active_at = last_active_at
        self.ended_at: str | None = None


class SessionLog:
    """The session of one server process. A command has none, but its reads count all the same.

    Args:
        clock: the current time, in UTC.
        budget: tokens of the files that are active at most.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        budget: int = CONTEXT_BUDGET_TOKENS,
    ) -> None:
        self._client = ""
        self._database = database
        self._clock = clock
        self._budget = budget
        self._lock = threading.Lock()
        self._is_open = False  # a client is connected
        self._session: _Session | None = None
        self._ended: list[_Session] = []
        self._stored: set[str] = set()  # ids of the sessions that the file knows
        self._events: list[dict[str, Any]] = []
        self._reads: list[dict[str, Any]] = []

    @property
    def current_id(self) -> str:
        """The id of the current session; "" for none."""
        with self._lock:
            self._end_if_idle()
            return self._session.session_id if self._session else ""

    def know_client(self, name: str) -> None:
        with self._lock:
            self._client = name

    def begin(self, client: str = "") -> None:
        with self._lock:
            self._is_open, self._client = True, client or self._client
            self._session = self._new_session()

    def note(self, kind: str, tool: str, detail: str) -> None:
        """Note a "read" with its path, a "query" with its text or a "discovery" with its id."""
        with self._lock:
            if not self._is_open:
                return
            self._end_if_idle()
            if self._session is None:
                self._session = self._new_session()
            now = self._now()
            self._session.last_active_at, self._session.client = now, self._client
            event = {"kind": kind, "tool": tool, "detail": detail[:LONGEST_DETAIL]}
            key = {"session_id": self._session.session_id, "happened_at": now}
            self._events.append({**event, **key})
            del self._events[:-MOST_WAITING]

    def note_queries(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Note the questions among a tool's arguments."""
        texts: list[Any] = [arguments.get(name) for name in QUERY_PARAMETERS]
        queries = arguments.get("queries")
        if isinstance(queries, list):
            texts += [query.get("query") for query in queries if isinstance(query, dict)]
        for text in texts:
            if isinstance(text, str):
                self.note("query", tool, text.encode("utf-8", "replace").decode())

    def read(self, path: str, module: str, token_count: int) -> None:
        with self._lock:
            file = {"path": path, "module": module, "token_count": token_count}
            self._reads.append({**file, "reads": 1, "last_accessed_at": self._now()})
        self.note("read", "read_file", path)

    def flush(self) -> None:
        """Write what waits. If the file cannot be written now, it waits on."""
        with self._lock:
            self._end_if_idle()
            sessions = self._ended + ([self._session] if self._session else [])
            written = {event["session_id"] for event in self._events}
            events, self._events = self._events, []
            reads, self._reads = self._reads, []
            ended, self._ended = self._ended, []
        if not (events or reads or ended) or self._database.read_only:
            return
        # A session in which nothing happened does not count.
        sessions = [s for s in sessions if s.session_id in written | self._stored]
        try:
            with self._database.write() as connection:
                connection.run_many("upsert_session", map(vars, sessions))
                connection.run_many("insert_session_event", events)
                connection.run("end_idle_sessions", idle_since=stored_time(self._clock() - IDLE))
                connection.run("trim_sessions")
                connection.run("trim_session_events")
                if reads:
                    connection.run_many("count_access", reads)
                    self._archive(connection)
            self._stored.update(session.session_id for session in sessions)
        except FileError:
            with self._lock:
                self._events = events + self._events
                self._reads = reads + self._reads
                self._ended = ended + self._ended

    def end(self) -> None:
        with self._lock:
            self._end_session()
            self._is_open = False
        self.flush()

    def _archive(self, connection: Connection) -> None:
        left = self._budget
        for file in file_scores(connection, self._clock()):
            left -= file.token_count
            if (left < 0) != file.is_archived:
                connection.run("archive_file", path=file.path, is_archived=int(left < 0))

    def _new_session(self) -> _Session:
        now = self._now()
        import uuid  # here: the command line loads this module, and has no sessions

        return _Session(str(uuid.uuid4()), self._client, now, now)

    def _end_if_idle(self) -> None:
        last = self._session and parse_time(self._session.last_active_at)
        if last and self._clock() - last > IDLE:
            self._end_session()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.ended_at = self._session.last_active_at
            self._ended.append(self._session)
            self._session = None

    def _now(self) -> str:
        return stored_time(self._clock())


def file_scores(connection: Connection, now: datetime | None = None) -> list[FileScore]:
    """The files that were read, the best first; ties by path."""
    now = now or datetime.now(UTC)
    rows = connection.rows("file_accesses")
    most = max((row["access_count"] for row in rows), default=1)
    scores = []
    for row in rows:
        days = max(0.0, (now - parse_time(row["last_accessed_at"])) / timedelta(days=1))
        recency = max(0.0, 1 - days / RECENCY_DAYS)
        score = RECENCY_WEIGHT * recency + ACCESS_WEIGHT * row["access_count"] / most
        scores.append(FileScore(score=score, **{**row, "is_archived": bool(row["is_archived"])}))
    return sorted(scores, key=lambda file: (-file.score, file.path))


def files_read_last(connection: Connection, limit: int) -> list[Row]:
    """The files that were read last: `path`, `reads`, `last_read`."""
    rows = connection.rows("file_accesses")
    rows.sort(key=lambda row: row["last_accessed_at"], reverse=True)
    return [
        {"path": row["path"], "reads": row["access_count"], "last_read": row["last_accessed_at"]}
        for row in rows[:limit]
    ]


def module_scores(connection: Connection) -> dict[str, float]:
    """How much each module matters now: as much as its best file."""
    best: dict[str, float] = {}
    for file in file_scores(connection):
        best.setdefault(file.module, file.score)
    return best


def newest_sessions(connection: Connection, limit: int) -> list[Row]:
    """The newest sessions, with counts of what happened in each."""
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
    """Every question, path and discovery id that sessions noted, by event."""
    return connection.tuples("all_session_details")


def delete_events(connection: Connection, event_ids: Sequence[int]) -> None:
    connection.run("delete_session_events", session_event_ids=[*event_ids])


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
            "called_at": datetime.now(UTC),
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
                rows = ({**call, "called_at": stored_time(call["called_at"])} for call in waiting)
                connection.run_many("insert_tool_call", rows)
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
