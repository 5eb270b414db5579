"""Commands that read answer where nothing can be written: on a full disk, in a read-only folder."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT, Run, ordinary_user

resource = pytest.importorskip("resource")

READING = (
    "status",
    "status --json",
    "list",
    "list docs",
    "search quartz",
    "get wind.md",
    "outline wind.md",
    "grep quartz",
    "recall",
    "graph",
    "doctor",
    'tool documents_search {"query":"quartz"}',
    'tool read_file {"path":"docs/wind.md"}',
    'tool grep_codebase {"pattern":"quartz"}',
    'tool searchLocalArchives {"query":"quartz"}',
)
# As a process that is killed leaves it: a log with pages for which the file has to grow.
KILLED = """
import os, sys
from pathlib import Path
from kb.store.database import Database

database = Database(Path(sys.argv[1]))
batch = database.batch()  # its end would merge the log
batch.__enter__()
with database.write() as connection:
    connection.apsw.execute("UPDATE documents SET content = content || hex(randomblob(100000))")
os._exit(0)
"""


@contextlib.contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """As on a disk that is full, for who writes behind so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def killed(filled: Run, project: Path) -> Path:
    """The file, and beside it the log that somebody left."""
    file = project / ".kb" / "kb.db"
    subprocess.run([sys.executable, "-c", KILLED, str(file)], cwd=ROOT, check=True)
    assert Path(f"{file}-wal").stat().st_size > 100_000
    return file


def test_a_log_that_has_no_room_in_the_file_is_read_where_it_is(run: Run, killed: Path) -> None:
    size = killed.stat().st_size
    with no_file_grows_beyond(size):
        for command in READING:
            outcome = run(*command.split(" "))
            assert outcome.code in (0, 1), (command, outcome)
            assert "cannot use" not in outcome.errors
        status = run("status")
    assert f"MB of writes are in {killed.name}-wal and not yet in" in status.out
    assert "make room there" in status.out
    assert killed.stat().st_size == size
    assert run("status").code == 0
    assert not Path(f"{killed}-wal").exists()


def test_a_write_that_is_in_the_log_alone_is_done_and_says_so(filled: Run, project: Path) -> None:
    file = project / ".kb" / "kb.db"
    (project / "docs" / "long.md").write_text("# Long\n\n" + "feldspar\n" * 6_000)
    with no_file_grows_beyond(file.stat().st_size):
        synced = filled("sync", "--no-embed")
    assert (synced.code, synced.out) == (0, "docs: 1 added, 4 unchanged (5 documents)\n")
    assert "a plain copy of kb.db alone lacks them; make room there" in synced.errors
    assert filled("list", "docs").lines[-2].split("\t")[0] == "long.md"
    assert not Path(f"{file}-wal").exists()


def test_what_has_no_room_in_the_log_is_refused_and_done_later(filled: Run, project: Path) -> None:
    file = project / ".kb" / "kb.db"
    (project / "docs" / "long.md").write_text("# Long\n\n" + "feldspar\n" * 60_000)
    with no_file_grows_beyond(file.stat().st_size):
        assert filled("sync", "--no-embed").code == 3
        assert len(filled("list", "docs").lines) == 4
    assert filled("sync", "--no-embed").out == "docs: 1 added, 4 unchanged (5 documents)\n"


def test_a_folder_that_is_read_only_is_read(
    filled: Run, project: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".kb" / "kb.db").rename(open_folder / "kb.db")
    (open_folder / "kb.db").chmod(0o444)
    open_folder.chmod(0o555)
    monkeypatch.chdir(open_folder)
    monkeypatch.setenv("HOME", str(open_folder))
    filled("--db", "kb.db", "doctor")  # loads what another user may not be able to
    with ordinary_user():
        for command in READING:
            outcome = filled("--db", "kb.db", *command.split(" "))
            assert outcome.code in (0, 1), (command, outcome)


def test_a_log_that_nobody_can_index_says_what_to_do(
    run: Run, killed: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suffix in ("", "-wal"):
        Path(f"{killed}{suffix}").rename(open_folder / f"kb.db{suffix}")
        (open_folder / f"kb.db{suffix}").chmod(0o444)
    open_folder.chmod(0o555)
    monkeypatch.chdir(open_folder)
    with ordinary_user():
        outcome = run("--db", "kb.db", "list")
    assert outcome.code == 3
    assert "copy both files to another folder" in outcome.errors
