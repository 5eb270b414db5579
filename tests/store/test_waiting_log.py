"""What is promised of a copy of the `.db` while another process reads the file."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, call

from kb.disk.open_databases import is_open_database
from kb.errors import BusyError
from kb.store import opening, write_ahead_log
from kb.store.database import Database
from kb.store.write_ahead_log import waiting_log
from kb.tools.session import Session

READER = """
import sys
import apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN; SELECT count(*) FROM documents").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


class Reader:
    """Another process inside a read transaction."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "reading\n"

    def end(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture
def reader(kb: Session) -> Iterator[Reader]:
    add(kb, "first", "The first one stands before the reader comes.")
    one = Reader(kb.database.path)
    yield one
    if one.process.poll() is None:
        one.end()


def add(kb: Session, doc_id: str, content: str) -> dict[str, Any]:
    return call(kb, "search_add_document", doc_id=doc_id, content=content)


def documents_in_copy(path: Path) -> list[str]:
    """What another program finds in a plain copy of the `.db` alone."""
    copy = shutil.copy(path, path.with_name("copy.db"))
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        rows = connection.execute("SELECT path FROM documents ORDER BY path").fetchall()
    connection.close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
    return [path for (path,) in rows]


def kb_command(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kb", "--db", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=path.parent,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(path.parent)},
        check=True,
    )


def test_an_answered_write_is_in_the_copy_or_its_answer_says_that_it_is_not(
    kb: Session, reader: Reader
) -> None:
    path = kb.database.path
    told = [
        add(kb, "second", "A vane turns."),
        call(kb, "search_create_index", index_name="notes"),
        call(kb, "context_record", content="We use JWT tokens in cookies"),
    ]
    assert documents_in_copy(path) == ["first"]
    for answer in told:
        assert "kb.db-wal" in answer["notice"]
        assert "kb copy" in answer["notice"]
        if Path("/proc/locks").exists():
            assert f"process {reader.process.pid} (python" in answer["notice"]
    reader.end()
    assert "notice" not in add(kb, "third", "A gauge tips.")
    copied = documents_in_copy(path)
    assert {"first", "second", "third"} <= set(copied)


def test_a_reader_of_the_newest_state_does_not_keep_a_write_from_the_copy(
    kb: Session, reader: Reader
) -> None:
    add(kb, "second", "A vane turns.")
    newest = Reader(kb.database.path)
    reader.end()
    assert kb.database.merge_log()
    assert documents_in_copy(kb.database.path) == ["first", "second"]
    newest.end()


def test_status_and_commands_say_what_a_copy_lacks(kb: Session, reader: Reader) -> None:
    add(kb, "second", "A vane turns.")
    path = kb.database.path
    plain = kb_command(path, "status").stdout
    told = [
        one["message"]
        for one in json.loads(kb_command(path, "status", "--json").stdout)["problems"]
    ]
    recorded = kb_command(path, "record", "We use tabs for indentation")
    for text in (plain, *told, recorded.stderr):
        assert "kb.db-wal and not yet in kb.db" in text
    assert len(told) == 1
    reader.end()
    kb.database.merge_log()
    assert "not yet in" not in kb_command(path, "status").stdout
    assert kb_command(path, "record", "We use spaces in YAML files").stderr == ""


def test_a_log_that_nobody_can_merge_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    most = 300_000
    with Database(path, most_log=most) as database:

        def write(text: str) -> None:
            with database.write() as connection:
                connection.apsw.execute(
                    "INSERT INTO collections (name, kind, created_at) VALUES (?, 'documents', '')",
                    (text,),
                )

        write("before")
        reader = Reader(path)
        stored: list[int] = []

        def write_on() -> None:
            for number in range(20):
                write(f"{number} {'x' * 30_000}")
                stored.append(number)

        with pytest.raises(BusyError, match="`kb doctor` names it"):
            write_on()
        assert 1 < len(stored) < 19
        assert Path(f"{path}-wal").stat().st_size < 2 * most
        reader.end()
        write("after")
        assert Path(f"{path}-wal").stat().st_size == 0
        with database.read() as connection:
            (count,) = connection.apsw.execute("SELECT count(*) FROM collections").fetchone()
        assert count == len(stored) + 2


def test_a_write_beside_another_threads_batch_is_in_the_copy(kb: Session) -> None:
    started, answered = threading.Event(), threading.Event()

    def embed_for_a_while() -> None:
        with kb.database.batch():
            with kb.database.write() as connection:
                connection.apsw.execute(
                    "INSERT INTO collections (name, kind, created_at) "
                    "VALUES ('in the batch', 'documents', '')"
                )
            started.set()
            answered.wait(60)

    thread = threading.Thread(target=embed_for_a_while)
    thread.start()
    started.wait(60)
    try:
        assert "notice" not in add(kb, "answered", "A vane turns.")
        assert documents_in_copy(kb.database.path) == ["answered"]
    finally:
        answered.set()
        thread.join()


def test_a_reader_who_came_first_is_named_when_it_keeps_a_write_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kb.db"
    Database(path).close()
    reader = Reader(path)
    monkeypatch.setattr(opening, "BUSY_MILLISECONDS", 50)
    with Database(path) as database:
        with pytest.raises(BusyError, match=r"cannot be written while .*reads it") as caught:
            database.merge_log()
        if Path("/proc").exists():
            assert f"process {reader.process.pid}" in caught.value.message
        reader.end()
        assert database.merge_log()


def test_the_log_of_a_file_is_seen_through_a_link_to_it(
    kb: Session, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "MERGE_MILLISECONDS", 10)
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(kb.database.path)
    kb.close()
    with Database(link) as linked, linked.write() as connection:
        connection.apsw.execute("UPDATE documents SET title = 'newer'")
    with Database(link) as linked:
        waits = waiting_log(linked)
        assert waits is not None
        assert [one.process for one in waits.held_by] == [reader.process.pid]
        assert is_open_database(Path(f"{kb.database.path}-wal"))
        # Its header may tell of pages that lie in the log: it is not cut off.
        with kb.database.path.open("r+b") as file:
            file.truncate(kb.database.path.stat().st_size - 1)
    Database(link).close()


def test_a_link_that_leads_to_nothing_gets_its_file_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to("there/kb.db")
    Database(link).close()
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["kb.db"]
