"""A command stores a few documents in one transaction, each whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.ingest import sync as sync_module
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.store.documents import NewDocument, store_document


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "kb.db") as opened:
        yield opened


@pytest.fixture
def written(folder: Path) -> Callable[[int], None]:
    """Writes so many documents."""

    def write(count: int) -> None:
        for number in range(count):
            (folder / f"{number:02}.md").write_text(f"# Page {number}\n\nWords of page {number}.\n")

    return write


def stored_paths(database: Database) -> list[str]:
    with database.read() as connection:
        rows = connection.apsw.execute("SELECT path FROM documents ORDER BY path")
        return [path for (path,) in rows]


def commits_of(database: Database, folder: Path, **options: Any) -> int:
    """The transactions of a first sync that store documents."""
    sizes: set[int] = set()
    store = sync_module.SyncRun._store_together

    def noted(run: sync_module.SyncRun, ready: Any) -> None:
        store(run, ready)
        sizes.add(len(stored_paths(database)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_module.SyncRun, "_store_together", noted)
        sync_collection(database, register(database, str(folder)), **options)
    return len(sizes)


def test_few_transactions_store_the_documents_of_a_command(
    database: Database, folder: Path, written: Callable[[int], None]
) -> None:
    written(20)
    assert commits_of(database, folder, reads_ahead=True) == 3
    assert len(stored_paths(database)) == 20


def test_a_server_stores_each_document_at_once(
    database: Database, folder: Path, written: Callable[[int], None]
) -> None:
    written(20)
    assert commits_of(database, folder) == 20


def test_long_documents_are_stored_at_once(
    database: Database,
    folder: Path,
    written: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sync_module, "MAX_BATCH_CHARACTERS", 10)
    written(5)
    assert commits_of(database, folder, reads_ahead=True) == 5


def test_a_document_that_cannot_be_stored_takes_none_with_it(
    database: Database,
    folder: Path,
    written: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def store(connection: Any, collection_id: int, new: NewDocument, *more: Any) -> int:
        found = store_document(connection, collection_id, new, *more)
        if new.path == "04.md":
            raise ValueError("a mistake of ours")
        return found

    monkeypatch.setattr(sync_module, "store_document", store)
    written(10)
    report = sync_collection(database, register(database, str(folder)), reads_ahead=True)
    assert report.added == 9
    assert [error["path"] for error in report.errors] == ["04.md"]
    assert len(stored_paths(database)) == 9
    with database.read() as connection:
        assert not connection.apsw.execute(
            "SELECT 1 FROM keyword_index WHERE keyword_index MATCH '\"page 4\"'"
        ).fetchall()


def test_what_was_ready_is_kept_when_a_command_is_interrupted(
    database: Database, folder: Path, written: Callable[[int], None]
) -> None:
    def interrupt(_stage: str, done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    written(10)
    registration = register(database, str(folder))
    with pytest.raises(KeyboardInterrupt):
        sync_collection(database, registration, reads_ahead=True, progress=interrupt)
    assert stored_paths(database) == [f"{number:02}.md" for number in range(5)]
