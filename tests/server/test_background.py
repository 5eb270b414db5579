"""Vectors of added documents follow, and never stand in the way."""

import threading
from pathlib import Path

import pytest

from kb.cli.main import main
from kb.server.background import embed_added
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session


def waiting(kb: Session) -> int:
    with kb.database.read() as connection:
        counts = connection.row("status_counts")
    return counts["chunks"] - counts["embedded_chunks"]


def add(kb: Session, count: int) -> None:
    for number in range(count):
        call_tool(kb, "search_add_document", {"doc_id": f"{number}", "content": f"text {number}"})


def test_added_documents_get_their_vectors(kb: Session) -> None:
    add(kb, 20)
    assert kb.activity.added.is_set()
    embed_added(kb)
    assert waiting(kb) == 0
    assert not kb.activity.added.is_set()


def test_a_folder_without_vectors_stays_as_it_is(fill) -> None:
    kb = fill({"a.md": "text"}, embed=False)
    add(kb, 1)
    embed_added(kb)
    assert waiting(kb) == 1


def test_embedding_gives_way_to_a_call_and_goes_on_later(kb: Session, embedder) -> None:
    add(kb, 60)
    plain = embedder.embed

    def embed_while_a_call_comes(texts):
        call_tool(kb, "search_index", {"query": "text"})
        return plain(texts)

    embedder.embed = embed_while_a_call_comes
    embed_added(kb, give_way=True)
    assert 0 < waiting(kb) < 60
    assert kb.activity.added.is_set()
    embedder.embed = plain
    embed_added(kb, give_way=True)
    assert waiting(kb) == 0


def test_sync_embeds_what_calls_left_waiting(tmp_path: Path) -> None:
    path = str(tmp_path / "kb.db")
    with open_session(Database(path), project=tmp_path) as kb:
        add(kb, 2)
    with pytest.raises(SystemExit) as end:
        main(["--db", path, "sync", "--quiet"])
    assert end.value.code == 0
    with open_session(Database(path), project=tmp_path) as kb:
        assert waiting(kb) == 0


def test_closing_the_file_ends_embedding(kb: Session) -> None:
    add(kb, 5)
    kb.database.close()
    thread = threading.Thread(target=lambda: _try(kb))
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def _try(kb: Session) -> None:
    from kb.errors import FileError

    try:
        embed_added(kb, give_way=True)
    except FileError:
        return
    raise AssertionError("the file was closed")
