"""Archive formats: layouts, header lines, kinds and dates."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kb.errors import SourceError
from kb.formats.archive import result_markdown
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.connection import Row
from kb.store.database import Database
from kb.tools.archive import search_local_archives
from kb.tools.call import Call
from kb.tools.session import Session, open_session

ARCHIVES = Path(__file__).parents[2] / "fixtures" / "archives"
ALGORITHMS = "4dafe80cfc8f5bc7f8fe46cbd4edf47b/content.md"
SPLITTING = "a55b49f6773a9daa3eda67936da23282/content.md"


def add(kb: Session, root: Path, **settings: Any) -> SyncReport:
    return sync_collection(
        kb.database, register(kb.database, str(root), kind="archive", settings=settings)
    )


def documents(kb: Session) -> dict[str, Row]:
    with kb.database.read() as connection:
        rows = connection.apsw.execute("SELECT path, title, metadata, content FROM documents")
        return {
            path: {"title": title, "content": content, **json.loads(metadata).get("archive", {})}
            for path, title, metadata, content in rows
        }


def write(root: Path, path: str, text: str, modified: int = 0) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if modified:
        os.utime(file, (modified, modified))


def test_the_fixture_archives_are_read(kb: Session) -> None:
    for name in ("research", "url-content"):
        assert add(kb, ARCHIVES / name).errors == []
    found = {
        path: (row["title"], row["source"], row["date"], row.get("urls"), row.get("query"))
        for path, row in documents(kb).items()
    }
    page = "http://www.Example.com/ml-algorithms/?utm_campaign=x#top"
    assert found == {
        "2025-05-20/machine_learning_intro.md": (
            "Introduction to Machine Learning",
            "research",
            "2025-05-20",
            None,
            "Introduction to Machine Learning",
        ),
        "decision trees.md": ("Decision trees", "research", "2025-03-02", None, None),
        "queries/7f3a/result.json": (
            "Gradient descent",
            "research",
            "2025-04-30",
            None,
            "Gradient descent",
        ),
        ALGORITHMS: ("Machine Learning Algorithms", "url-content", "2025-05-21", [page], None),
        SPLITTING: (
            "Splitting data",
            "url-content",
            "2025-05-22",
            ["https://example.com/splitting"],
            None,
        ),
        "steps.md": ("Step sizes", "url-content", "2025-04-30", None, None),
    }


def test_the_archive_s_own_setting_says_what_it_holds(kb: Session) -> None:
    add(kb, ARCHIVES / "url-content", source="research")
    assert {row["source"] for row in documents(kb).values()} == {"research"}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("2024-02-29/a.md", "Date: 2020-01-01", "2024-02-29"),
        ("notes_2024-02-28_b.md", "", "2024-02-28"),
        ("2023-02-29/a.md", "Date: 2020-01-01", "2020-01-01"),
        ("a.md", "# T\n\n**Date:** 3 May 2021\n", "2021-05-03"),
        ("a.md", "# T\n\n## Captured: 2021-05-04T10:00:00Z\n", "2021-05-04"),
        ("a.md", "# T\n\n- Date: May 5, 2021\n", "2021-05-05"),
        ("a.md", "---\ndate: 2021-05-06\n---\n", "2021-05-06"),
        ("a.md", "```\nDate: 2020-01-01\n```\n", "2001-09-09"),
        ("a.md", "Date: some day\n", "2001-09-09"),
    ],
)
def test_the_date_is_of_the_path_then_the_text_then_the_file(
    kb: Session, folder: Path, path: str, text: str, expected: str
) -> None:
    write(folder, path, text, modified=1_000_000_000)
    add(kb, folder)
    assert documents(kb)[path]["date"] == expected


def test_a_change_of_metadata_json_alone_is_seen(kb: Session, folder: Path) -> None:
    name = "0" * 32
    write(folder, f"{name}/content.md", "Text.")
    write(folder, f"{name}/metadata.json", '{"url": "https://example.com/a", "title": "A"}')
    add(kb, folder)
    write(folder, f"{name}/metadata.json", '{"url": "https://example.com/bb", "title": "B"}')
    assert add(kb, folder).updated == 1
    assert documents(kb)[f"{name}/content.md"]["title"] == "B"
    assert add(kb, folder).unchanged == 1


def test_what_cannot_be_read_is_said_and_stops_nothing(kb: Session, folder: Path) -> None:
    write(folder, "queries/1/result.json", "{broken")
    write(folder, "queries/2/result.json", '{"answer": "Fine."}')
    write(folder, "queries/2/metadata.json", "[broken")
    report = add(kb, folder)
    assert [row["path"] for row in report.errors] == ["queries/1/result.json"]
    assert [row["path"] for row in report.notices] == ["queries/2/result.json"]
    assert documents(kb)["queries/2/result.json"]["content"] == "Fine.\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Text", "# Research: q\n\nText\n"),
        ({"result": {"content": "# Own\n\nText"}}, "# Own\n\nText\n"),
        ({"choices": [{"message": {"content": "Text"}}]}, "# Research: q\n\nText\n"),
        (
            {"results": [{"title": "A", "url": "https://e.com/a b", "snippet": "x"}, "y"]},
            "# Research: q\n\n## [A](<https://e.com/a>)\n\nx\n\ny\n",
        ),
        (
            {"answer": "x", "citations": ["https://e.com", {"title": "B", "url": "https://e.org"}]},
            "# Research: q\n\nx\n\n## Sources\n\n- <https://e.com>\n- [B](<https://e.org>)\n",
        ),
        ({"odd": 1}, '# Research: q\n\n```json\n{\n  "odd": 1\n}\n```\n'),
        (None, "# Research: q\n"),
    ],
)
def test_results_of_many_shapes_become_markdown(value: Any, expected: str) -> None:
    assert result_markdown(value, "q") == expected


def test_changing_a_setting_reads_unchanged_documents_again(kb: Session, folder: Path) -> None:
    write(folder, "a.md", "- PR: [#1](https://example.com/pull/1)\n\n# A")
    write(folder, "b.md", "See https://example.com/pull/1.")
    sync_collection(kb.database, register(kb.database, str(folder)))
    assert add(kb, folder, url_field="pr").updated == 2
    assert documents(kb)["a.md"]["urls"] == ["https://example.com/pull/1"]
    assert documents(kb)["a.md"]["title"] == "A"
    with kb.database.read() as connection:
        (row,) = connection.apsw.execute(
            "SELECT t.path FROM citations JOIN documents s ON s.document_id = source_document_id"
            " JOIN documents t ON t.document_id = target_document_id WHERE s.path = 'b.md'"
        )
    assert row == ("a.md",)


def test_archives_of_the_environment_are_searched_without_adding_them(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("research", "url-content"):
        shutil.copytree(ARCHIVES / name, tmp_path / name)
    monkeypatch.setenv("RESEARCH_ARCHIVE_PATH", str(tmp_path / "research"))
    monkeypatch.setenv("URL_CONTENT_ARCHIVE_PATH", str(tmp_path / "url-content"))
    found = search_local_archives.function(Call(kb), "learning", limit=50).results
    assert {row.document.source for row in found} == {"research", "url-content"}
    monkeypatch.setenv("RESEARCH_ARCHIVE_PATH", str(tmp_path / "missing"))
    with pytest.raises(
        SourceError, match=r"^Failed to search local archives: RESEARCH_ARCHIVE_PATH"
    ):
        search_local_archives.function(Call(kb), "learning")


def test_a_file_that_was_made_anew_gets_the_archives_of_the_environment_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ARCHIVES / "research", tmp_path / "research")
    monkeypatch.setenv("RESEARCH_ARCHIVE_PATH", str(tmp_path / "research"))
    path = tmp_path / "kb.db"
    for _ in range(2):
        with open_session(Database(path)) as session:
            assert search_local_archives.function(Call(session), "learning").results
        path.unlink()


@pytest.mark.parametrize(
    "line",
    [
        "# Research: a" + " " * 200_000 + "b",
        "Date: 2" + " " * 200_000 + "x",
        "# Source: [" * 50_000,
    ],
)
def test_a_hostile_header_line_holds_nothing_up(line: str, tmp_path: Path) -> None:
    # Inside the engine nothing could stop an expression that tries again: a process of its own.
    (tmp_path / "a.md").write_text(line + "\n")
    command = [sys.executable, "-m", "kb", "--db", str(tmp_path / "kb.db"), "add", str(tmp_path)]
    more = ["--kind", "archive", "--no-embed", "--json"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120)
    assert '"added":1' in done.stdout.replace(" ", ""), done.stderr
