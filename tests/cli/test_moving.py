"""A project that moves, documents that move, and a copy that is given away."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from support import Run, call

from kb.sources.address import kept, located
from kb.store.database import Database
from kb.tools.session import open_session


def sources(file: Path) -> dict[str, str]:
    """Each collection's source as it is written in a file."""
    connection = sqlite3.connect(file)
    rows = dict(connection.execute("SELECT name, source FROM collections").fetchall())
    connection.close()
    return rows


@pytest.fixture
def moved(filled: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project at another place; nothing is at the old one."""
    other = project.with_name("elsewhere")
    project.rename(other)
    monkeypatch.chdir(other)
    return other


def test_sources_inside_the_project_are_kept_relative(filled: Run, project: Path) -> None:
    assert sources(project / ".kb" / "kb.db") == {"docs": "./docs"}
    assert filled("list").out == f"docs\t4\tdocuments\t{project / 'docs'}\t\n"


def test_the_project_itself_and_what_is_outside_are_sources(run: Run, project: Path) -> None:
    (project.parent / "outside").mkdir()
    (project.parent / "outside" / "a.md").write_text("# A\n")
    run("add", ".", "--name", "all", "--no-embed")
    run("add", "../outside", "--no-embed")
    outside = str(project.parent / "outside")
    assert sources(project / ".kb" / "kb.db") == {"all": ".", "outside": outside}
    assert run("sync", "--no-embed").code == 0


@pytest.mark.parametrize("typed", ["manual", "manual/", "./manual", "../project/manual"])
def test_a_folder_that_is_a_link_is_called_as_it_was_typed(
    run: Run, project: Path, tmp_path: Path, typed: str
) -> None:
    (project / "manual").symlink_to("docs")
    assert run("add", typed, "--no-embed").code == 0
    assert sources(project / ".kb" / "kb.db") == {"manual": "./docs"}


def test_a_moved_project_goes_on_working(filled: Run, moved: Path) -> None:
    (moved / "docs" / "new.md").write_text("# New\n\ngranite\n")
    assert filled("sync", "--no-embed").out == "docs: 1 added, 4 unchanged (5 documents)\n"
    assert filled("search", "granite", "--format", "files").out == "docs/new.md\n"
    assert filled("get", "docs/wind.md:1").out == "# Wind\n"
    assert filled("add", "docs", "--no-embed").out == "docs: 5 unchanged (5 documents)\n"
    assert filled("graph", "--broken").code == 0


def test_absolute_paths_of_earlier_versions_become_relative_with_the_next_sync(
    filled: Run, project: Path
) -> None:
    file = project / ".kb" / "kb.db"
    connection = sqlite3.connect(file)
    connection.execute("UPDATE collections SET source = ?", (str(project / "docs"),))
    connection.commit()
    connection.close()
    assert filled("sync", "--no-embed").out == "docs: 4 unchanged (4 documents)\n"
    assert sources(file) == {"docs": "./docs"}


def test_a_copy_elsewhere_names_the_folders_where_they_are(
    filled: Run, project: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    assert filled("copy", str(copy)).code == 0
    assert sources(copy) == {"docs": str(project / "docs")}
    assert filled("--db", str(copy), "sync", "--no-embed").code == 0
    assert list(tmp_path.glob("copy*")) == [copy]


@pytest.mark.parametrize(
    ("source", "project", "written"),
    [
        ("/p/docs", "/p", "./docs"),
        ("/p", "/p", "."),
        ("/pq/docs", "/p", "/pq/docs"),
        ("/docs", "/", "./docs"),
        ("/p/docs", "", "/p/docs"),
        ("", "/p", ""),
        ("git+https://h/p", "/p", "git+https://h/p"),
        ("/p/.hidden/x", "/p", "./.hidden/x"),
    ],
)
def test_what_is_written_is_found_again(source: str, project: str, written: str) -> None:
    assert kept(source, project) == written
    assert located(written, project) == source


def test_documents_that_moved_are_told_to_be_elsewhere(filled: Run, project: Path) -> None:
    shutil.move(project / "docs", project / "manual")
    gone = filled("sync", "--no-embed")
    assert gone.code == 3
    assert "`kb move docs FOLDER`" in gone.errors
    moved = filled("move", "docs", "manual", "--no-embed")
    assert (moved.code, moved.out) == (0, "docs: 4 unchanged (4 documents)\n")
    assert sources(project / ".kb" / "kb.db") == {"docs": "./manual"}
    assert filled("search", "marble", "--format", "files").out == "manual/guide/rain.md\n"


@pytest.mark.parametrize("options", [[], ["--name", "docs"]])
def test_a_folder_that_moved_is_not_added_a_second_time(
    options: list[str], filled: Run, project: Path
) -> None:
    (project / "new").mkdir()
    shutil.move(project / "docs", project / "new" / "docs")
    refused = filled("add", "new/docs", "--no-embed", *options)
    assert refused.code == 2
    assert f"`kb move docs {project / 'new' / 'docs'}`" in refused.errors
    assert filled("add", "new/docs", "--no-embed", "--name", "other").code == 0


def test_a_move_that_makes_no_sense_changes_nothing(filled: Run, project: Path) -> None:
    (project / "empty").mkdir()
    (project / "two").mkdir()
    (project / "two" / "x.md").write_text("# X\n")
    filled("add", "two", "--no-embed")
    filled("tool", "search_add_document", '{"doc_id": "a", "content": "b"}')
    for name, folder, code in (
        ("docs", "nowhere", 3),
        ("docs", "empty", 3),
        ("docs", "two", 2),
        ("dcos", "two", 1),
        ("default", "two", 2),
    ):
        outcome = filled("move", name, folder, "--no-embed")
        assert outcome.code == code, outcome
    assert sources(project / ".kb" / "kb.db") == {"docs": "./docs", "two": "./two", "default": ""}
    assert len(filled("list", "docs").lines) == 4


def test_documents_of_an_index_are_listed_and_removed(filled: Run) -> None:
    for name in ("one", "two"):
        filled("tool", "search_add_document", json.dumps({"doc_id": name, "content": "wombat"}))
    assert [line.split("\t")[0] for line in filled("list", "default").lines] == ["one", "two"]
    assert filled("remove", "default", "one").out == "removed one from default\n"
    assert [line.split("\t")[0] for line in filled("list", "default").lines] == ["two"]
    found = filled("tool", "search_index", '{"query": "wombat"}').json["results"]
    assert [row["doc_id"] for row in found] == ["two"]
    outcome = filled("remove", "default", "tow")
    assert outcome.code == 1
    assert "two" in outcome.errors


def test_a_document_that_a_sync_would_bring_back_is_not_removed(filled: Run) -> None:
    outcome = filled("remove", "docs", "wind.md")
    assert outcome.code == 2
    assert "--exclude" in outcome.errors
    filled("record", "We decided to keep one file.", "--quiet")
    assert "`kb forget ID`" in filled("remove", "discoveries", "x").errors
    assert len(filled("list", "docs").lines) == 4


def test_a_copy_for_others_holds_the_documents_and_nothing_of_their_use(
    filled: Run, project: Path
) -> None:
    (project.parent / "outside").mkdir()
    (project.parent / "outside" / "a.md").write_text("# Basalt\n")
    (project / "manual").mkdir()
    (project / "manual" / "pump.md").write_text("# Pump\n\nPrime the pump.\n")
    config = {"project_name": "weather", "external_docs": {"path": "./manual"}}
    (project / ".kb" / "config.json").write_text(json.dumps(config))
    (project / "secretfile.py").write_text("x = 1\n")
    filled("add", "../outside", "--no-embed")
    filled("tool", "activate_project", "{}")
    filled("record", "Decided that zanzibarfruit is the password of nobody")
    with open_session(Database(project / ".kb" / "kb.db")) as session:  # a client asks
        session.log.begin("client 1")
        call(session, "documents_search", query="where does mozambiquefruit grow")
    filled("tool", "read_file", '{"path": "secretfile.py"}')
    filled("tool", "search_add_document", '{"doc_id": "note", "content": "obsidian"}')
    original = (project / ".kb" / "kb.db").read_bytes()
    traces = [b"zanzibarfruit", b"mozambiquefruit", b"secretfile", str(project.parent).encode()]
    assert [trace for trace in traces if trace not in original] == []

    done = filled("copy", "shared.db", "--share")
    assert done.code == 0
    assert "without the source, which is outside of the project:" in done.errors
    copied = (project / "shared.db").read_bytes()
    assert not [trace for trace in traces if trace in copied]
    file = sqlite3.connect(project / "shared.db")
    for table in ("sessions", "session_events", "file_accesses", "tool_calls", "projects"):
        assert file.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    file.close()
    shared = sources(project / "shared.db")
    assert shared["docs"] == "./docs"
    assert shared["outside"] == ""

    def find(word: str) -> list[str]:
        rows = filled("--db", "shared.db", "search", word, "--json").json["results"]
        return [row["documentId"] for row in rows]

    assert {"guide/sub dir.md", "wind.md"} <= set(find("quartz"))
    assert find("basalt")[0] == "a.md"
    assert find("obsidian")[0] == "note"
    assert find("prime the pump")[0] == "pump.md"
    assert filled("--db", "shared.db", "doctor").code == 0
    # And the original still holds all of it.
    assert "zanzibarfruit" in filled("recall").out


def test_rows_whose_file_has_changed_since_the_sync_say_so(filled: Run, project: Path) -> None:
    assert "changed since sync" not in filled("search", "quartz").out
    file = project / "docs" / "wind.md"
    file.write_text(file.read_text() + "more quartz\n")
    lines = [line for line in filled("search", "quartz").lines if not line.startswith(" ")]
    assert [("changed since sync" in line) for line in lines] == [
        line.startswith("docs/wind.md") for line in lines
    ]
    rows = filled("search", "quartz", "--json").json["results"]
    changed = {row["documentId"]: row.get("changedSinceSync") for row in rows}
    assert changed == {"wind.md": True, "guide/sub dir.md": None}
    filled("sync", "--no-embed")
    assert "changed since sync" not in filled("search", "quartz").out


def test_adding_says_what_was_left_out_for_its_format(run: Run, project: Path) -> None:
    for name in ("a.png", "b.PNG", "guide/c.py", "Makefile", ".hidden.zip"):
        (project / "docs" / name).write_bytes(b"x")
    added = run("add", "docs", "--no-embed")
    assert "kb: docs: left out for their formats: 2 .png, 1 .py, 1 without a suffix" in added.errors
    assert "left out" not in run("sync", "--no-embed").errors
    assert "left out" not in run("add", "docs", "--no-embed", "--include", "**/*.md").errors


def test_searches_say_how_many_passages_have_vectors(
    embedded: Run, project: Path, windrose_copy: Path
) -> None:
    assert embedded("search", "E417").errors == ""
    embedded("add", "docs", "--no-embed")
    total = embedded("status", "--json").json
    told = f"{total['embedded_chunks']} of {total['chunks']} passages have vectors yet"
    assert total["embedded_chunks"] == total["chunks"] - 5
    assert told in embedded("search", "E417").errors
    assert "have vectors yet" not in embedded("search", "E417", "-c", "windrose").errors
    reply = embedded("tool", "documents_search", '{"query": "E417"}').json
    assert told in reply["notice"]


def test_a_search_says_where_else_the_text_stands(run: Run, project: Path) -> None:
    shutil.rmtree(project / "docs")
    for path in ("pump.md", "old/pump.md"):
        (project / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
        (project / "docs" / path).write_text("# Filter\n\nCleaned with a soft brush.\n")
    assert run("add", "docs", "--no-embed").code == 0
    first, _ = run("search", "soft brush").out.splitlines()
    assert first.endswith("(also in pump.md)")


@pytest.mark.parametrize("content", [None, "", "-----BEGIN RSA PRIVATE KEY-----\n"])
def test_a_refused_addition_in_a_fresh_project_leaves_nothing_behind(
    content: str | None, run: Run, project: Path
) -> None:
    (project / "other").mkdir()
    if content is not None:
        (project / "other" / ("a.bin" if not content else "a.md")).write_text(content)
    for arguments in (["add", "other"], ["search", "x", "--from", "other"]):
        outcome = run(*arguments, "--no-embed")
        assert outcome.code in (1, 3)
        assert not (project / ".kb").exists()
    (project / ".kb").mkdir()
    (project / ".kb" / "config.json").write_text("{}")
    run("add", "other", "--no-embed")
    left = sorted(file.name for file in (project / ".kb").iterdir())
    assert left == [".gitignore", "config.json"]
