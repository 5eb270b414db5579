"""Writes in quick succession are merged into the file once, when they end."""

import shutil
import threading
from pathlib import Path

from kb.database import Database


def rows_in_copy(path: Path) -> int:
    copy = path.with_name("copy.db")
    copy.unlink(missing_ok=True)
    shutil.copy(path, copy)
    with Database(copy) as database, database.read() as connection:
        return len(connection.rows("collections"))


def insert(database: Database, name: str) -> None:
    with database.write() as connection:
        connection.run(
            "insert_collection",
            name=name,
            kind="index",
            source="",
            include="[]",
            exclude="[]",
            options="{}",
            description=None,
            version=None,
            project_id=None,
            created_at="2026-01-01T00:00:00Z",
        )


def test_a_single_write_is_complete_at_once(tmp_path: Path) -> None:
    with Database(tmp_path / "kb.db") as database:
        database.burst_seconds = 60.0
        insert(database, "a")
        assert rows_in_copy(tmp_path / "kb.db") == 1


def test_a_burst_is_complete_soon_after_its_end(tmp_path: Path) -> None:
    with Database(tmp_path / "kb.db") as database:
        database.burst_seconds = 0.05
        for number in range(20):
            insert(database, f"{number}")
        while timers := [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
            timers[0].join()
        assert rows_in_copy(tmp_path / "kb.db") == 20


def test_closing_in_a_burst_loses_nothing(tmp_path: Path) -> None:
    with Database(tmp_path / "kb.db") as database:
        database.burst_seconds = 60.0
        for number in range(5):
            insert(database, f"{number}")
    assert rows_in_copy(tmp_path / "kb.db") == 5
    assert not (tmp_path / "kb.db-wal").exists()
