"""Copies and translations of a document are one row, and a version is one word."""

from pathlib import Path
from typing import Any

import pytest
from support import Filler, HashEmbedder, call

from kb.library.opening import on_database
from kb.search.rows import key_of
from kb.store.database import AttachedFiles, Database

NOTE = "# Filter\n\nThe intake filter of the pump is cleaned in April, with a soft brush."


def test_copies_are_one_row_that_names_the_others(fill: Filler) -> None:
    conflict = "pump (Anna's conflicted copy 2026-01-0{}).md"
    pages = {f"copy{number}/pump.md": NOTE for number in range(5)}
    pages |= {conflict.format(number): f"{NOTE} Twice, {number}." for number in range(4)}
    pages |= {"pump.md": f"{NOTE} Twice.", "right.md": "# Brush\n\nA soft brush hangs by the pump."}
    kb = fill(pages)
    rows = call(kb, "documents_search", query="soft brush for the pump filter")["results"]
    assert len(rows) == 3
    assert sorted(len(row.get("alsoIn", [])) for row in rows) == [0, 4, 4]
    assert "right.md" in {row["documentId"] for row in rows}
    documents = call(kb, "documents_context", query="soft brush for the pump filter")["documents"]
    assert sorted(len(document.get("alsoIn", [])) for document in documents) == [0, 4, 4]


def test_translations_are_one_row_with_the_questions_language_first(fill: Filler) -> None:
    pages = {
        "docs/en/retry.md": "# Retry\n\nA failed request is sent again after two seconds.",
        "docs/de/retry.md": "# Retry\n\nWas scheitert, wird nach zwei Sekunden gesendet.",
        "docs/ja/retry.md": "# Retry\n\n失敗したリクエストは二秒後に再送されます。",
    }
    kb = fill(pages)
    [row] = call(kb, "documents_search", query="when is a failed request sent again")["results"]
    assert row["documentId"] == "docs/en/retry.md"
    assert set(row["alsoIn"]) == {"docs/de/retry.md", "docs/ja/retry.md"}
    [row] = call(kb, "documents_search", query="リクエストは再送されますか")["results"]
    assert row["documentId"] == "docs/ja/retry.md"


def test_copies_in_other_collections_and_files_are_in_the_same_row(
    tmp_path: Path, embedder: HashEmbedder
) -> None:
    def add(file: str, *names: str) -> None:
        with on_database(Database(tmp_path / file), **settings) as base:
            for name in names:
                (tmp_path / name).mkdir(exist_ok=True)
                (tmp_path / name / "pump.md").write_text(NOTE)
                (tmp_path / name / f"{name}.md").write_text(f"# Brush\n\nThe brush of {name}.")
                base.add(str(tmp_path / name), name=name)

    settings: Any = {"project": tmp_path, "make_embedder": lambda _: embedder}
    query = "soft brush for the pump filter"
    add("kb.db", "old", "new")
    add("other.db", "new")
    with on_database(Database(tmp_path / "kb.db"), **settings) as base:
        row, *others = base.search(query)
        names = {f"{row.collection}/{row.document_id}", *(row.also_in or ())}
        assert names == {"old/pump.md", "new/pump.md"}
        assert sorted(other.document_id for other in others) == ["new.md", "old.md"]
        rows = base.search(query, collections=["old"]).results
        assert [(row.collection, row.also_in) for row in rows] == [("old", None)] * 2
        both = base.search(query, collections=["old", "new"]).results
        assert {row.collection for row in both if row.document_id == "pump.md"} == {"old", "new"}
        with base.database.write() as connection:  # as a sync that reads anew begins
            for row in connection.rows("collections"):
                connection.run("forget_content_hashes", collection_id=row["collection_id"])
        assert len(base.search(query).results) == 4
    beside = AttachedFiles([tmp_path / "other.db"])
    with on_database(Database(tmp_path / "kb.db"), beside=beside, **settings) as base:
        base.sync(force=True)
        row, *_ = base.search(query)
        pumps = {f"{row.collection}/{row.document_id}", *(row.also_in or ())}
        assert pumps == {"old/pump.md", "new@kb/pump.md", "new@other/pump.md"}


def test_translations_in_other_shards_are_in_the_same_row(
    fill: Filler, tmp_path: Path, embedder: HashEmbedder
) -> None:
    texts = {"en": "is sent again", "de": "wird wieder gesendet", "fr": "est envoyé encore"}
    kb = fill({f"{name}/retry.md": f"# Retry\n\nIt {text}." for name, text in texts.items()})
    folder = tmp_path / "cut"
    kb.base.cut(folder, kb.database.path.stat().st_size // 3)
    first, *others = sorted(folder.glob("*.db"))
    settings: Any = {"project": tmp_path, "make_embedder": lambda _: embedder}
    with on_database(Database(first), beside=AttachedFiles(others), **settings) as base:
        assert len([file for file in base.status() if file.documents]) > 1
        [row] = base.search("Retry: is it sent again?")
        names = {row.document_id, *(row.also_in or ())}
        assert names == {f"{name}/retry.md" for name in texts}


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("docs/en/a.md", "docs/zh-CN/a.md"),
        ("a.md", "a.de.md"),
        ("a.md", "a (Anna's conflicted copy 2026-01-01).md"),
        ("b/a.md", "b/a.sync-conflict-20260101-120000-ABCDEFG.md"),
    ],
)
def test_paths_of_copies_and_translations_have_one_key(path: str, other: str) -> None:
    assert key_of(path) == key_of(other)


@pytest.mark.parametrize(
    ("path", "other"), [("a/b.md", "a/c.md"), ("index.md", "it.md"), ("a.1.md", "a.2.md")]
)
def test_paths_of_other_documents_have_other_keys(path: str, other: str) -> None:
    assert key_of(path) != key_of(other)


def test_a_version_is_one_word(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "# Release 1.1.5\n\nThe hatch is wider in 1.1.5.",
            "b.md": "# Release 1.5\n\nThe door is wider in 1.5. Both hinges are new.",
            "c.md": "# Release 1.5.2\n\nThe lock is stronger in 1.5.2.",
        }
    )
    for query in ('"1.5"', "+1.5"):
        rows = call(kb, "documents_search", query=query)["results"]
        assert [row["documentId"] for row in rows] == ["b.md"]
    rows = call(kb, "documents_search", query="1.5")["results"]
    assert rows[0]["documentId"] == "b.md"
    assert all(row["relevanceScore"] < 0.7 for row in rows[1:])
