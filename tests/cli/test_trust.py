"""A file that came from elsewhere reads nothing outside of its project until somebody says so."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support import ROOT, Run

from kb.ingest.follow import follow_folders
from kb.store.database import Database
from kb.tools.session import open_session


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder outside of the project."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "diary.md").write_text("# Diary\n\nA marzipan secret.\n")
    return folder


@pytest.fixture
def clone(filled: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as another user has it: nothing is noted of its file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another user"))
    return project / ".kb" / "kb.db"


def rewrite(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, values)


def point_to(file: Path, source: str) -> None:
    rewrite(file, "UPDATE collections SET source = ?", source)


def test_what_this_user_adds_is_read_again_without_a_question(filled: Run, notes: Path) -> None:
    assert filled("add", str(notes), "--no-embed").code == 0
    (notes / "new.md").write_text("# New\n")
    synced = filled("sync", "--no-embed", "--json")
    assert synced.code == 0
    assert [one["added"] for one in synced.json["collections"]] == [0, 1]


def test_documents_of_a_file_from_elsewhere_are_read_at_once(filled: Run, clone: Path) -> None:
    assert filled("search", "quartz", "--format", "files").code == 0
    assert filled("get", "wind.md").code == 0
    assert filled("sync", "--no-embed").code == 0  # its sources are inside of the project


def test_a_source_outside_of_the_project_is_refused_by_its_name(
    filled: Run, clone: Path, notes: Path
) -> None:
    point_to(clone, str(notes))
    code, _, errors = filled("sync", "--no-embed")
    assert code == 3
    assert str(notes) in errors
    assert "`kb trust docs`" in errors
    assert filled("search", "marzipan").code == 1
    assert filled("search", "quartz").code == 0  # nothing that was stored is gone
    assert f"not read until you say so: {notes}; `kb trust docs`" in filled("status").out


@pytest.mark.parametrize(
    "source",
    [
        "./../notes",
        "./link",
        "../notes",
        "docs/../../notes",
        "git+file:///etc",
        "http://127.0.0.1:9/manifest.json",
        "https://example.invalid/page",
        "./docs\0/../../notes",
    ],
)
def test_however_it_is_written_it_is_outside(
    filled: Run, clone: Path, notes: Path, project: Path, source: str
) -> None:
    (project / "link").symlink_to(notes)
    point_to(clone, source)
    code, _, errors = filled("sync", "--no-embed")
    assert code == 3
    assert "kb trust docs" in errors
    assert filled("search", "marzipan").code == 1


def test_the_folders_of_a_file_that_lies_in_no_project_are_all_outside(
    filled: Run, clone: Path, notes: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copy(clone, tmp_path / "handed-over.db"))
    point_to(file, "./notes")
    code, _, errors = filled("--db", str(file), "sync", "--no-embed")
    assert code == 3
    assert "kb trust docs" in errors


def test_who_trusts_a_collection_has_it_read(filled: Run, clone: Path, notes: Path) -> None:
    point_to(clone, str(notes))
    rewrite(
        clone,
        "INSERT INTO collections (name, kind, source, created_at) "
        "VALUES ('system', 'documents', '/etc', '')",
    )
    confirmed = filled("trust", "docs", "--json").json["confirmed"]
    assert [one["source"] for one in confirmed] == [str(notes)]
    code, _, errors = filled("sync", "--no-embed", "--force")
    assert code == 3
    assert "kb trust system" in errors
    assert "kb trust docs" not in errors
    assert filled("search", "marzipan").code == 0
    shown = filled("trust")
    assert shown.out == f"{clone} may read /etc (system)\n"
    assert "nothing more" in filled("trust").out


def test_a_file_that_is_pulled_anew_is_not_asked_about_again(
    filled: Run, clone: Path, notes: Path
) -> None:
    point_to(clone, str(notes))
    assert filled("trust").code == 0
    pulled = clone.with_name("pulled.db")
    shutil.copy(clone, pulled)
    os.replace(pulled, clone)
    assert filled("sync", "--no-embed", "--force").code == 0
    point_to(clone, "/etc")
    assert filled("sync", "--no-embed").code == 3


def test_private_addresses_are_the_users_to_allow(filled: Run, clone: Path, project: Path) -> None:
    listed = {"sources": {"files": [{"url": "http://127.0.0.1:9/page"}, "wind.md"]}}
    (project / "docs" / "manifest.json").write_text(json.dumps(listed))
    rewrite(clone, "UPDATE collections SET options = ?", json.dumps({"allow_private": True}))
    synced = filled("sync", "--no-embed")
    assert "private address" in synced.errors
    trusted = filled("trust", "docs", "--json").json["confirmed"]
    assert [(one["source"], one["privateAddresses"]) for one in trusted] == [
        (str(project / "docs"), True)
    ]
    synced = filled("sync", "--no-embed")
    assert "private address" not in synced.errors
    assert "cannot be fetched" in synced.errors  # nobody listens there, but it was asked


def test_a_server_follows_no_folder_outside_of_the_project(
    filled: Run, clone: Path, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    point_to(clone, str(notes))
    with open_session(Database(clone)) as session:
        assert follow_folders(session.knowledge, session.model) == []
    assert "kb trust docs" in caplog.text


def test_the_doctor_does_not_look_into_it(filled: Run, clone: Path, notes: Path) -> None:
    point_to(clone, str(notes))
    out = filled("doctor").out
    assert "not compared" in out
    assert "diary.md" not in out


def test_a_copy_that_this_user_makes_reads_what_the_file_does(
    filled: Run, notes: Path, tmp_path: Path
) -> None:
    assert filled("add", str(notes), "--no-embed").code == 0
    copy = tmp_path / "copy.db"
    assert filled("copy", str(copy)).code == 0
    assert filled("--db", str(copy), "sync", "--no-embed").code == 0
    part = tmp_path / "part.db"
    assert filled("split", str(part), "notes").code == 0
    assert filled("--db", str(part), "sync", "--no-embed").code == 0


def test_merging_a_file_from_elsewhere_confirms_nothing(
    filled: Run, clone: Path, notes: Path, tmp_path: Path
) -> None:
    point_to(clone, str(notes))
    own = tmp_path / "own.db"
    assert filled("--db", str(own), "merge", str(clone)).code == 0
    code, _, errors = filled("--db", str(own), "sync", "--no-embed")
    assert code == 3
    assert "kb trust docs" in errors


def test_a_collection_may_move_and_keeps_its_private_addresses(
    filled: Run, notes: Path, tmp_path: Path
) -> None:
    assert filled("add", str(notes), "--no-embed", "--allow-private").code == 0
    moved = tmp_path / "moved"
    notes.rename(moved)
    assert filled("move", "notes", str(moved)).code == 0
    assert filled("trust", "--json").json["confirmed"] == []


def test_what_is_named_is_read_though_nothing_can_be_noted(
    filled: Run, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no folder"))
    assert filled("add", str(notes), "--no-embed").code == 0
    assert filled("search", "marzipan").code == 0
    assert filled("sync", "notes", "--no-embed").code == 3


def on_terminal(answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and what a terminal shows of a command whose question is answered."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kb", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as popen:
        os.close(slave)
        os.write(master, f"{answer}\n".encode())
        shown = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            shown += data
    os.close(master)
    return popen.returncode, shown.decode()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_on_a_terminal_it_is_asked_once_by_name(filled: Run, clone: Path, notes: Path) -> None:
    point_to(clone, str(notes))
    code, shown = on_terminal("n", "sync", "--no-embed")
    assert code == 3
    assert f"{notes} (docs)" in shown
    assert filled("search", "marzipan").code == 1
    code, shown = on_terminal("y", "sync", "--no-embed", "--force")
    assert code == 0
    assert "[y/N]" in shown
    code, shown = on_terminal("n", "sync", "--no-embed")
    assert code == 0
    assert "[y/N]" not in shown
