"""Archives are looked at when they are searched: no `--watch`, no `kb sync`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import HashEmbedder, call

from kb.disk import watch
from kb.library.knowledge_base import KnowledgeBase
from kb.library.opening import on_database
from kb.store.database import Database
from kb.tools.session import Session

REPORT = "# Research: {}\n\nThe {} of the station is described here.\n"
Paths = Callable[[KnowledgeBase, str], list[str]]

DOORS: dict[str, Paths] = {
    "archives": lambda kb, words: [
        row.document.path.split("/", 1)[1] for row in kb.search_archives(words).results
    ],
    "search": lambda kb, words: [row.document_id for row in kb.search(words).results],
    "batch": lambda kb, words: [
        row.document_id for row in kb.search_batch([words]).results[0].results
    ],
    "context": lambda kb, words: [document.document_id for document in kb.context(words)],
    "people": lambda kb, words: [row["documentId"] for row in kb.search_for_people(words)[0]],
}


def write(folder: Path, name: str, word: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(REPORT.format(word, word))


def opened(folder: Path) -> KnowledgeBase:
    embedder = HashEmbedder()
    return on_database(Database(folder / "kb.db"), project=folder, make_embedder=lambda _: embedder)


@pytest.fixture
def base(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with opened(tmp_path) as base:
        write(tmp_path / "reports", "first.md", "barometer")
        base.add(str(tmp_path / "reports"), kind="archive", embed=False)
        yield base


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LOOK_SHARE", 0.0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("door", DOORS)
def test_a_new_report_is_found_by_the_next_search(
    base: KnowledgeBase, tmp_path: Path, door: str
) -> None:
    find = DOORS[door]
    assert find(base, "barometer") == ["first.md"]
    write(tmp_path / "reports", "second.md", "hygrometer")
    assert find(base, "hygrometer")[0] == "second.md"
    write(tmp_path / "reports", "second.md", "pyranometer")
    assert find(base, "pyranometer")[0] == "second.md"
    (tmp_path / "reports" / "second.md").unlink()
    assert "second.md" not in find(base, "pyranometer")


@pytest.mark.usefixtures("always")
def test_what_a_search_took_in_waits_for_vectors_and_gets_them(
    base: KnowledgeBase, tmp_path: Path
) -> None:
    base.embed()
    session = Session(base)
    call(session, "documents_search", query="barometer")
    session.activity.added.clear()
    call(session, "documents_search", query="barometer")
    assert not session.activity.added.is_set()
    write(tmp_path / "reports", "second.md", "hygrometer")
    call(session, "documents_search", query="hygrometer")
    assert session.activity.added.is_set()
    assert base.count_waiting() > 0
    base.embed_added(lambda: False)
    assert base.count_waiting() == 0


def test_folders_are_looked_at_every_few_seconds_at_most(
    base: KnowledgeBase, tmp_path: Path
) -> None:
    base.search("barometer")
    write(tmp_path / "reports", "second.md", "hygrometer")
    assert "second.md" not in DOORS["search"](base, "hygrometer")


@pytest.mark.usefixtures("always")
def test_only_archives_that_this_user_named_are_looked_at(
    base: KnowledgeBase, tmp_path: Path
) -> None:
    write(tmp_path / "pages", "page.md", "barometer")
    base.add(str(tmp_path / "pages"), embed=False)
    write(tmp_path / "pages", "late.md", "hygrometer")
    assert "late.md" not in DOORS["search"](base, "hygrometer")
    base.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "kb.db", elsewhere)
    write(tmp_path / "reports", "second.md", "hygrometer")
    with opened(elsewhere) as stranger:
        assert "second.md" not in DOORS["archives"](stranger, "hygrometer")


@pytest.mark.usefixtures("always")
def test_an_archive_whose_folder_is_gone_answers_with_what_is_stored(
    base: KnowledgeBase, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "reports")
    assert DOORS["archives"](base, "barometer") == ["first.md"]


@pytest.mark.usefixtures("always")
def test_a_file_that_lies_in_its_archive_is_no_change_of_it(tmp_path: Path) -> None:
    folders = watch.FolderStates(tmp_path / "kb.db")
    write(tmp_path, "first.md", "barometer")
    assert folders.has_changed(tmp_path, 0.0)
    with opened(tmp_path) as base:
        base.record("the station stands on the roof")
    assert not folders.has_changed(tmp_path, 0.0)


def test_a_link_to_a_folder_is_not_followed_round_and_round(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "reports", tmp_path / "elsewhere"
    write(folder, "first.md", "barometer")
    write(elsewhere, "second.md", "hygrometer")
    (folder / "again").symlink_to(folder, target_is_directory=True)
    (folder / "away").symlink_to(elsewhere, target_is_directory=True)
    folders = watch.FolderStates(tmp_path / "kb.db")
    folders.has_changed(folder, 0.0)
    assert not folders.has_changed(folder, 0.0)
    write(elsewhere, "second.md", "anemometer, of brass")
    assert not folders.has_changed(folder, 0.0)
    write(folder, "first.md", "barometer, of brass")
    assert folders.has_changed(folder, 0.0)


@pytest.mark.slow
def test_a_command_finds_a_new_report(tmp_path: Path) -> None:
    def kb(*words: str) -> str:
        command = [sys.executable, "-m", "kb", "--db", str(tmp_path / "kb.db"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    write(tmp_path / "reports", "first.md", "barometer")
    kb("add", str(tmp_path / "reports"), "--kind", "archive", "--no-embed")
    write(tmp_path / "reports", "second.md", "hygrometer")
    (row, *_) = json.loads(kb("search", "hygrometer", "--json"))["results"]
    assert row["documentId"] == "second.md"
