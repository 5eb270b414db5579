"""The library adds, syncs, moves, removes and embeds as the command line does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kb
from kb.errors import CollectionNotFound, SourceError, TokenNotFound, UsageError
from kb.formats.convert.formats import can_recognise
from kb.library.knowledge_base import KnowledgeBase


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "vane.md").write_text("# Vane\n\nCalibrate the wind vane before the first storm.\n")
    (folder / "mast.md").write_text("# Mast\n\nThe mast is lowered in winter.\n")
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with kb.open(tmp_path / "base.db", project=tmp_path) as base:
        yield base


def test_a_folder_is_added_searched_and_synced(base: KnowledgeBase, folder: Path) -> None:
    stages: list[str] = []
    results = base.add(str(folder), progress=lambda stage, *_: stages.append(stage))
    assert [(one.collection, one.added, one.total) for one in results] == [("notes", 2, 2)]
    assert results.embedded == 2
    assert results.model
    assert [*dict.fromkeys(stages)] == ["documents", "reading", "embedding"]
    assert base.search("when is the mast lowered?").results[0].document_id == "mast.md"
    (folder / "mast.md").unlink()
    assert [one.removed for one in base.sync(["notes"])] == [1]
    assert results.to_dict() == {
        "collections": [
            {
                "collection": "notes",
                "added": 2,
                "updated": 0,
                "removed": 0,
                "unchanged": 0,
                "total": 2,
                "renamed": 0,
                "errors": [],
                "notices": [],
            }
        ],
        "embedded": 2,
        "reused": 0,
    }


def test_of_several_sources_a_wrong_one_adds_nothing(base: KnowledgeBase, folder: Path) -> None:
    with pytest.raises(SourceError, match="there is no folder or file"):
        base.add(str(folder), str(folder / "nowhere"))
    assert not base.list_collections().collections


def test_text_comes_first_and_vectors_when_asked_for(base: KnowledgeBase, folder: Path) -> None:
    assert base.add(str(folder), embed=False).embedded == 0
    assert base.passages_waiting("notes") == 2
    assert base.search("mast").results[0].distance is None
    assert base.embed("notes").embedded == 2
    assert base.passages_waiting("notes") == 0
    again = base.reembed("all-MiniLM-L6-v2-int8")  # which made them: nothing is left to do
    assert (again.embedded, again.model) == (0, base.model.model_name())


def test_a_folder_is_not_added_for_a_search_that_cannot_be(
    base: KnowledgeBase, folder: Path
) -> None:
    with pytest.raises(CollectionNotFound, match="others"):
        base.add_for_search(str(folder), collections=["others"])
    assert not base.list_collections().collections
    assert base.add_for_search(str(folder), collections=["notes"]).added == 2


def test_a_collection_moves_and_goes(base: KnowledgeBase, folder: Path) -> None:
    base.add(str(folder), embed=False)
    elsewhere = shutil.move(folder, folder.with_name("elsewhere"))
    failed = base.sync()
    assert failed.has_failed
    assert "kb move notes FOLDER" in failed.collections[0].errors[0]["message"]
    assert not base.move("notes", str(elsewhere)).has_failed
    assert base.list_collections().collections[0].source == str(elsewhere)
    with pytest.raises(UsageError, match="back with the next sync"):
        base.remove("notes", "mast.md")
    assert base.remove("notes").documents == 2
    assert not base.list_collections().collections


def test_what_is_nowhere_else_is_removed_only_by_force(base: KnowledgeBase) -> None:
    base.create_index("own")
    base.add_document("first", "A text of its own.", index="own")
    base.add_document("second", "Another text.", index="own")
    with pytest.raises(UsageError, match="nowhere but in this file"):
        base.remove("own")
    removed = base.remove("own", "first")
    assert removed.to_dict() == {"removed": "first", "collection": "own"}
    assert base.remove("own", force=True).to_dict() == {"removed": "own", "documents": 1}


def test_rows_for_people_have_a_snippet_and_their_file(base: KnowledgeBase, folder: Path) -> None:
    base.add(str(folder), embed=False)
    rows, notice = base.search_for_people("mast", explain=True)
    assert notice.startswith("There are no embeddings yet")
    (row,) = rows
    start, end = row["marks"][-1]
    assert row["snippet"][start:end].lower() == "mast"
    assert row["file"] == str(folder / "mast.md")
    assert row["why"]


def test_a_copy_and_parts_of_a_file(base: KnowledgeBase, folder: Path, tmp_path: Path) -> None:
    base.add(str(folder), embed=False)
    (tmp_path / "copies").mkdir()
    copied = base.copy(tmp_path / "copies")
    assert copied.copy == str(tmp_path / "copies" / "base.db")
    assert base.copy(tmp_path / "shared.db", share=True).to_dict()["withoutSource"] == ["notes"]
    (moved,) = base.split(tmp_path / "other.db", ["notes"])
    assert (moved.documents, moved.waiting) == (2, 2)
    assert not base.list_collections().collections
    assert [one.name for one in base.merge(tmp_path / "other.db")] == ["notes"]
    with pytest.raises(UsageError, match="the file itself"):
        base.merge(tmp_path / "base.db")


def test_a_folder_becomes_a_bundle(base: KnowledgeBase, folder: Path, tmp_path: Path) -> None:
    packed = base.pack(folder, tmp_path / "notes.tar.gz", name="handbook", exclude=["mast.md"])
    assert (packed.documents, packed.left_out) == (1, [])
    assert [one.collection for one in base.add(packed.bundle, embed=False)] == ["handbook"]


def test_the_status_tells_what_waits_and_what_is_wrong(base: KnowledgeBase, folder: Path) -> None:
    base.add(str(folder), embed=False)
    (status,) = base.status()
    assert (status.documents, status.chunks, status.waiting, status.model) == (2, 2, 2, None)
    assert not status.problems
    assert status.to_dict()["model"] is None
    assert status.to_dict()["collections"][0]["passages"] == 2
    assert not base.problems()
    assert base.waiting_log() is None
    assert not base.tool_calls()


def test_tokens_are_made_listed_revoked_and_forgotten(base: KnowledgeBase) -> None:
    assert not base.asks_for_tokens()
    made = base.add_token("anna", "write", days=3)
    (token,) = base.list_tokens()
    assert made not in str(token)
    assert (token.name, token.role, token.state) == ("anna", "write", "valid")
    base.revoke_tokens("anna")
    with pytest.raises(TokenNotFound):
        base.revoke_tokens("anna")
    assert base.list_tokens()[0].state == "revoked"
    assert base.asks_for_tokens()
    assert base.forget_tokens() == 1
    assert not base.asks_for_tokens()


def test_a_source_alone_that_cannot_be_added_is_an_error(
    base: KnowledgeBase, tmp_path: Path
) -> None:
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "a.md").write_bytes(b"\x00\x01\x02" * 100)
    with pytest.raises(SourceError):
        base.add(str(tmp_path / "binary"), embed=False)
    assert not base.list_collections().collections


def test_recognition_of_text_that_is_not_installed_is_refused(
    base: KnowledgeBase, folder: Path
) -> None:
    if can_recognise("rapidocr"):
        pytest.skip("it is installed")
    with pytest.raises(UsageError, match="text recognition needs"):
        base.add(str(folder), embed=False, settings={"ocr": "rapidocr"})
    assert not base.list_collections().collections
