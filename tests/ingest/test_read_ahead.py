"""A second process makes documents as this one does, and never outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WINDROSE

from kb.ingest import read_ahead
from kb.ingest.budget import MAXIMUM_LINES
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database

KEPT = {
    "documents": "path, title, summary, metadata, content_hash, encoding, content",
    "sections": "document_id, position, heading_path, start_line, end_line",
    "chunk_texts": "chunk_id, heading, lead, body, extra",
    "citation_texts": "citation_id, target_url, kind, line, context",
    "document_keys": "key, document_id, rank",
    "vocabulary": "word, stem",
}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The second processes of syncs, which all start one."""
    started: list[subprocess.Popen[bytes]] = []
    start = read_ahead._start

    def noted() -> subprocess.Popen[bytes]:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(read_ahead, "_start", noted)
    monkeypatch.setattr(read_ahead, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(read_ahead, "available_cores", lambda: 2)
    return started


def synced(path: Path, folder: Path, **options: Any) -> tuple[SyncReport, dict[str, list[Any]]]:
    """What a sync says, and the rows that it stores."""
    with Database(path) as database:
        report = sync_collection(database, register(database, str(folder)), **options)
        with database.read() as connection:
            rows = {
                table: connection.apsw.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
                for table, columns in KEPT.items()
            }
            return report, {table: found.fetchall() for table, found in rows.items()}


def odd_files(folder: Path) -> None:
    """The handbook with files that are refused or said something of, one of each kind."""
    for file in WINDROSE.rglob("*.md"):
        place = folder / file.relative_to(WINDROSE)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    (folder / "b-latin.md").write_bytes("# Höhe\n\nÜber dem Dach.\n".encode("latin-1"))
    (folder / "c-key.md").write_text("-----BEGIN RSA PRIVATE KEY-----\nabc\n")
    (folder / "d-lines.md").write_text("\n" * (MAXIMUM_LINES + 1))
    (folder / "e-no-text.md").write_bytes(b"\x00\x01\x02" * 1000)
    (folder / "f-table.csv").write_text("name,height\nmast,9\n")
    (folder / "g-empty.md").write_text("")
    (folder / "h-page.html").write_text("<title>Mast</title><p>A mast of nine metres.</p>")


def test_all_is_as_one_process_does_it(
    tmp_path: Path, folder: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    odd_files(folder)
    expected = synced(tmp_path / "one.db", folder)
    assert not children
    found = synced(tmp_path / "two.db", folder, reads_ahead=True)
    assert len(children) == 1
    assert found == expected
    again, rows = synced(tmp_path / "two.db", folder, reads_ahead=True, force=True)
    assert again.updated == 0
    assert rows == expected[1]
    assert all(child.poll() is not None for child in children)


def test_a_child_that_fails_costs_time_alone(
    tmp_path: Path,
    folder: Path,
    children: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd_files(folder)
    expected = synced(tmp_path / "one.db", folder)
    command = [sys.executable, "-c", "import sys; sys.stdin.read(1)"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(read_ahead, "_start", start)
    assert synced(tmp_path / "two.db", folder, reads_ahead=True) == expected

    def none() -> subprocess.Popen[bytes]:
        raise OSError("no process more")

    monkeypatch.setattr(read_ahead, "_start", none)
    assert synced(tmp_path / "three.db", folder, reads_ahead=True) == expected


def test_documents_are_made_here_while_none_is_ready(
    tmp_path: Path,
    folder: Path,
    children: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd_files(folder)
    expected = synced(tmp_path / "one.db", folder)
    made_here: list[object] = []
    has_made = threading.Event()
    make_here, start = read_ahead._FileAhead.make_here, read_ahead._start

    def noted(ahead: read_ahead._FileAhead) -> bool:
        if has_made_one := make_here(ahead):
            made_here.append(ahead.made)
            if len(made_here) == 3:
                has_made.set()
        return has_made_one

    def late() -> subprocess.Popen[bytes]:
        assert has_made.wait(300)
        return start()

    monkeypatch.setattr(read_ahead._FileAhead, "make_here", noted)
    monkeypatch.setattr(read_ahead, "_start", late)
    assert synced(tmp_path / "two.db", folder, reads_ahead=True) == expected
    assert len(made_here) >= 3
    assert len(children) == 1


def test_an_interruption_ends_the_child_and_keeps_what_was_stored(
    tmp_path: Path, folder: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    odd_files(folder)

    def interrupt(_stage: str, done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synced(tmp_path / "kb.db", folder, reads_ahead=True, progress=interrupt)
    assert [child.poll() is not None for child in children] == [True]
    report, _ = synced(tmp_path / "kb.db", folder, reads_ahead=True)
    assert report.unchanged
    assert report.added


def test_little_text_is_read_by_one_process(
    tmp_path: Path,
    folder: Path,
    children: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd_files(folder)
    monkeypatch.setattr(read_ahead, "available_cores", lambda: 1)
    synced(tmp_path / "one.db", folder, reads_ahead=True)
    monkeypatch.undo()
    monkeypatch.setattr(read_ahead, "_start", lambda: pytest.fail("there is little to read"))
    synced(tmp_path / "two.db", folder, reads_ahead=True)
    assert not children


KILLED = """
import os, signal, sys
from kb.library.collecting import register
from kb.ingest import read_ahead
from kb.ingest.sync import sync_collection
from kb.store.database import Database

read_ahead.WORTH_A_PROCESS, read_ahead.available_cores = 1, lambda: 2
start = read_ahead._start

def noted():
    child = start()
    print(child.pid, flush=True)
    return child

def wait(stage, done, total):
    if done == 2:
        sys.stdin.read()

read_ahead._start = noted
database = Database(sys.argv[1])
sync_collection(database, register(database, sys.argv[2]), reads_ahead=True, progress=wait)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for another's child")
def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path, folder: Path) -> None:
    odd_files(folder)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "kb.db"), str(folder)]
    parent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    ended, _, _ = select.select([child], [], [], 120)
    os.close(child)
    assert ended
