"""A file that Litestream replicates: nobody but Litestream merges its log."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from pathlib import Path

import pytest
from support import call

from kb.ingest.forget import write_anew
from kb.store.database import Database
from kb.store.schema import PAGE_SIZE
from kb.store.vocabulary import add_words
from kb.store.write_ahead_log import (
    CONTROL,
    MERGED_PAGES,
    is_replicated,
    litestream_folder,
    waiting_log,
)
from kb.tools.session import Session

WAL, DELETE = b"\2\2", b"\1\1"


def journal_of(path: Path) -> bytes:
    """What the file's header says of its journal."""
    return path.read_bytes()[18:20]


def log_of(path: Path) -> int:
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def mark(path: Path) -> None:
    """As Litestream leaves it from its first start on."""
    litestream_folder(path).mkdir()


def documents_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (count,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    connection.close()
    return int(count)


def test_the_log_of_a_replicated_file_is_left_to_litestream(kb: Session) -> None:
    path = kb.database.path
    call(kb, "search_add_document", doc_id="a", content="A vane turns.")
    assert log_of(path) == 0
    mark(path)
    answer = call(kb, "search_add_document", doc_id="b", content="A gauge tips.")
    assert "notice" not in answer
    before = log_of(path)
    assert before > 0
    assert not kb.database.log.waits
    assert waiting_log(kb.database) is None
    assert log_of(path) == before


@pytest.mark.slow
def test_a_long_batch_does_not_merge_the_log_of_a_replicated_file(kb: Session) -> None:
    path = kb.database.path
    mark(path)
    with kb.database.batch():
        for number in range(30):  # far more pages than SQLite lets a log grow by itself
            content = " ".join(f"word{number}x{i}" for i in range(3000))
            call(kb, "search_add_document", doc_id=f"d{number}", content=content)
    assert log_of(path) > MERGED_PAGES * PAGE_SIZE
    assert kb.database.merge_log()
    assert log_of(path) > MERGED_PAGES * PAGE_SIZE


def test_a_replicated_file_stays_in_the_mode_of_its_log_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    with Database(path) as database, database.write():
        pass
    assert journal_of(path) == DELETE
    mark(path)
    with Database(path) as database, database.write() as connection:
        connection.run("delete_orphans")
    assert journal_of(path) == WAL
    assert Path(f"{path}-wal").exists()
    with Database(path) as database, database.read() as connection:
        assert connection.integrity(1) == []


def test_all_is_merged_again_once_a_file_is_replicated_no_more(kb: Session) -> None:
    path = kb.database.path
    mark(path)
    call(kb, "search_add_document", doc_id="a", content="A vane turns.")
    assert log_of(path)
    litestream_folder(path).rmdir()
    call(kb, "search_add_document", doc_id="b", content="A gauge tips.")
    assert log_of(path) == 0
    kb.database.close()
    assert journal_of(path) == DELETE
    assert documents_of(path) == 2


def test_writes_go_on_while_litestream_is_away_for_long(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    mark(path)
    with Database(path, most_log=100_000) as database:
        for number in range(60):
            with database.write() as connection:
                add_words(connection, [f"word{number}x{i}" for i in range(20)])
        assert log_of(path) < 2_000_000


def test_writes_make_way_for_litestream_the_more_the_longer_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, most = tmp_path / "kb.db", 1000 * PAGE_SIZE
    pauses: list[float] = []
    numbers = itertools.count()
    monkeypatch.setattr(time, "sleep", pauses.append)
    with Database(path, most_log=most) as database:
        mark(path)
        running = litestream_folder(path) / CONTROL

        def write(times: int) -> list[float]:
            pauses.clear()
            for _ in range(times):
                with database.write() as connection:
                    add_words(connection, [f"word{next(numbers)}"])
            return list(pauses)

        assert write(100) == []  # nobody is there to copy
        running.touch()
        first, *_, last = write(100)
        assert 0 < first < last < 0.02
        running.unlink()
        assert write(10) == []


def test_a_copy_of_a_replicated_file_is_an_ordinary_file(tmp_path: Path, kb: Session) -> None:
    mark(kb.database.path)
    call(kb, "search_add_document", doc_id="a", content="A vane turns.")
    copy = tmp_path / "copy.db"
    kb.database.copy_to(copy)
    assert not is_replicated(copy)
    assert documents_of(copy) == 1


def test_what_is_taken_out_of_a_replicated_file_is_not_said_to_be_gone(kb: Session) -> None:
    assert write_anew(kb.database) == ""
    mark(kb.database.path)
    said = write_anew(kb.database)
    assert "Litestream has yet to merge its log" in said
    assert "the copy elsewhere keeps its history" in said


def test_a_link_to_a_replicated_file_is_replicated_too(tmp_path: Path, kb: Session) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    try:
        link.symlink_to(kb.database.path)
    except OSError:
        pytest.skip("no symbolic links here")
    mark(kb.database.path)
    assert is_replicated(link)
