"""Sessions, access counts, scores, rate limits and the numbers of the call log."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kb.errors import RateLimited, UsageError
from kb.store.database import Database
from kb.store.sessions import (
    SessionLog,
    call_statistics,
    file_scores,
    logged_calls,
    module_scores,
    percentile,
)
from kb.tools.registry import call_tool
from kb.tools.session import DEFAULT_LIMITS, RateLimits, Session, parse_limits


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2025, 1, 15, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def recent(database: Database) -> list[dict[str, Any]]:
    with database.read() as connection:
        return connection.rows("recent_sessions", limit=10)


def test_a_session_holds_what_happened_between_begin_and_end(kb: Session, clock: Clock) -> None:
    log = SessionLog(kb.database, clock)
    log.begin("client 1.0")
    log.read("src/a.py", "src", 100)
    log.read("src/a.py", "src", 100)
    log.note_queries("documents_search_batch", {"queries": [{"query": "x"}, {"query": "\ud800"}]})
    log.note("discovery", "context_record", "id")
    clock.move(minutes=5)
    log.note_queries("grep_codebase", {"pattern": "y"})
    log.end()
    (row,) = recent(kb.database)
    assert row.pop("id")
    assert row == {
        "client": "client 1.0",
        "startedAt": "2025-01-15T10:00:00Z",
        "lastActiveAt": "2025-01-15T10:05:00Z",
        "endedAt": "2025-01-15T10:05:00Z",
        "filesRead": 1,
        "queries": 3,
        "discoveries": 1,
    }


def test_the_newest_events_are_kept_and_reads_stay_counted(kb: Session, clock: Clock) -> None:
    log = SessionLog(kb.database, clock)
    log.begin()
    log.read("src/first.py", "src", 100)
    log.flush()
    with kb.database.write() as connection:
        connection.apsw.execute(
            "WITH RECURSIVE number (n) AS "
            "(SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 20050) "
            "INSERT INTO session_events (session_id, kind, tool, detail, happened_at) "
            "SELECT session_id, 'query', 'search_index', 'x', '' FROM sessions, number"
        )
    log.note("query", "search_index", "last")
    log.end()
    with kb.database.read() as connection:
        events = connection.apsw.execute("SELECT detail FROM session_events ORDER BY 1").fetchall()
        (reads,) = connection.apsw.execute("SELECT access_count FROM file_accesses").fetchall()
    assert len(events) == 20_000
    assert ("last",) in events
    assert ("src/first.py",) not in events
    assert reads == (1,)


def test_half_an_hour_without_a_call_ends_a_session(kb: Session, clock: Clock) -> None:
    log = SessionLog(kb.database, clock)
    log.begin()
    log.note("query", "context_search", "one")
    first = log.current_id
    clock.move(minutes=31)
    assert log.current_id == ""
    log.note("query", "context_search", "two")
    assert log.current_id not in ("", first)
    log.flush()
    assert [row["endedAt"] for row in recent(kb.database)] == [None, "2025-01-15T10:00:00Z"]


def test_the_session_of_a_killed_server_ends_later(kb: Session, clock: Clock) -> None:
    killed, next_one = SessionLog(kb.database, clock), SessionLog(kb.database, clock)
    killed.begin()
    killed.note("query", "context_search", "one")
    killed.flush()
    clock.move(hours=1)
    next_one.begin()
    next_one.note("query", "context_search", "two")
    next_one.flush()
    assert [row["endedAt"] for row in recent(kb.database)] == [None, "2025-01-15T10:00:00Z"]


def test_a_connection_without_a_call_leaves_no_session(kb: Session) -> None:
    kb.log.begin()
    kb.log.end()
    assert recent(kb.database) == []


def test_the_score_is_six_parts_recency_and_four_parts_access(kb: Session, clock: Clock) -> None:
    log = SessionLog(kb.database, clock)
    log.read("old.py", "", 1)
    clock.move(days=15)
    for _ in range(4):
        log.read("often.py", "api", 1)
    log.read("once.py", "web", 1)
    log.flush()
    with kb.database.read() as connection:
        scores = {file.path: file.score for file in file_scores(connection, clock())}
        assert scores == pytest.approx({"often.py": 1.0, "once.py": 0.7, "old.py": 0.4})
        assert list(scores) == ["often.py", "once.py", "old.py"]
        later = file_scores(connection, clock() + timedelta(days=365))
        assert [file.score for file in later] == pytest.approx([0.4, 0.1, 0.1])
        assert next(iter(module_scores(connection))) == "api"


def test_files_beyond_the_budget_are_archived_lowest_first_and_come_back(
    kb: Session, clock: Clock
) -> None:
    log = SessionLog(kb.database, clock, budget=250)

    def archived() -> set[str]:
        log.flush()
        with kb.database.read() as connection:
            return {file.path for file in file_scores(connection, clock()) if file.is_archived}

    for path in ("a", "b", "b", "c", "c", "c"):
        log.read(path, "", 100)
    assert archived() == {"a"}
    clock.move(days=20)
    for _ in range(3):
        log.read("a", "", 100)
    assert archived() == {"b"}


def test_a_file_that_cannot_be_written_takes_no_accesses(kb: Session, tmp_path: Path) -> None:
    kb.database.close()
    (tmp_path / "kb.db").chmod(0o444)
    log = SessionLog(kb.database)
    log.read("a", "", 1)
    log.flush()  # closed: kept for later, and no error
    assert len(log._reads) == 1


def test_limits_count_the_last_minute() -> None:
    now = 0.0
    limits = RateLimits({"read_file": 2}, lambda: now)
    limits.check("read_file")
    now = 30.0
    limits.check("read_file")
    limits.check("documents_search")  # has none
    with pytest.raises(RateLimited, match=r"^Rate limit exceeded for read_file$") as caught:
        limits.check("read_file")
    assert caught.value.details == {"limit": 2, "retryAfterSeconds": 30}
    now = 60.0
    limits.check("read_file")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("off", {}),
        ("5", dict.fromkeys(DEFAULT_LIMITS, 5)),
        ("grep=7", {**DEFAULT_LIMITS, "grep_codebase": 7}),
        ("search=1, read_file=2", {"context_search": 1, "read_file": 2, "grep_codebase": 60}),
    ],
)
def test_limits_are_read_from_the_command_line(text: str, limits: dict[str, int]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", ["0", "-1", "x", "x=1", "grep=", "grep=1,", "="])
def test_limits_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="rate limit"):
        parse_limits(text)


def test_a_limited_call_is_an_error_with_its_code(kb: Session) -> None:
    kb.limits = RateLimits({"documents_list_collections": 1})
    assert not call_tool(kb, "documents_list_collections", {}).is_error
    result = call_tool(kb, "documents_list_collections", {})
    assert result.content["error"] == "Rate limit exceeded for documents_list_collections"
    assert result.content["code"] == "RATE_LIMITED"


def test_the_call_log_is_summed_up_by_tool(kb: Session) -> None:
    for number in range(1, 101):
        kb.calls.add("a", "RATE_LIMITED" if number > 90 else "", float(number), 10)
    kb.calls.add("b", "", 5.0, 1)
    kb.flush()
    with kb.database.read() as connection:
        rows = call_statistics([logged_calls(connection)])
    assert rows[0] == {
        "tool": "a",
        "calls": 100,
        "successRate": 0.9,
        "p50": 50.0,
        "p95": 95.0,
        "p99": 99.0,
        "errors": {"RATE_LIMITED": 10},
    }
    assert (rows[1]["tool"], rows[1]["p50"], rows[1]["p99"]) == ("b", 5.0, 5.0)
    assert percentile([1.0, 2.0], 0.5) == 1.0
