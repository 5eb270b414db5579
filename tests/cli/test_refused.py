"""A refused command changes nothing: not a glob, not a name, not a document, not a file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kb.cli.main import main

PAGE = "# Wind\n\nIt blows from the west.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folders to add, and a file that holds one of them."""
    folder = tmp_path / "project"
    for name in ("docs", "other", "empty", "binary", ".git"):
        (folder / name).mkdir(parents=True)
    (folder / "docs" / "a.md").write_text(PAGE)
    (folder / "docs" / "b.md").write_text("# Rain\n\nIt pours.\n")
    (folder / "docs" / "data.bin").write_bytes(b"\0\1\2\3" * 100)
    (folder / "other" / "a.md").write_text("# Other\n")
    (folder / "binary" / "a.md").write_bytes(b"\0\1\2\3" * 100)
    (folder / "id_rsa.txt").write_text("secret")
    return folder


class Outcome(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Outcome]


@pytest.fixture
def kb(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in the project, in this process."""
    monkeypatch.chdir(project)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, *capsys.readouterr())

    return run


def content(folder: Path) -> list[str]:
    """All that the file holds, as SQL; but for the statistics of calls, which count failures."""
    with contextlib.closing(sqlite3.connect(folder / ".kb" / "kb.db")) as connection:
        return [
            line
            for line in connection.iterdump()
            if not line.startswith(("INSERT INTO sqlite_", 'INSERT INTO "tool_calls"'))
        ]


def configure(folder: Path, configuration: object) -> None:
    (folder / ".kb").mkdir(exist_ok=True)
    text = configuration if isinstance(configuration, str) else json.dumps(configuration)
    (folder / ".kb" / "config.json").write_text(text)


REFUSED = [
    ("add", "docs", "--include", "*.mdd"),
    ("add", "docs", "--include", "*.bin"),
    ("add", "docs", "--exclude", "**"),
    ("add", "docs", "--include", "[", "--include", "*.md"),
    ("add", "docs", "--kind", "archive", "--include", "*.mdd"),
    ("add", "docs", "--kind", "archive", "--holds", "research", "--include", "*.mdd"),
    ("add", "docs", "--description", "new", "--include", "*.mdd"),
    ("add", "docs", "--name", "again"),
    ("add", "docs", "--name", "again", "--include", "*.mdd"),
    ("add", "docs", "--name", " "),
    ("add", "docs", "--model", "no/such-model"),
    ("add", "other", "--name", "docs"),
    ("add", "nowhere"),
    ("add", "empty"),
    ("add", "binary"),
    ("add", "id_rsa.txt"),
    ("search", "wind", "--from", "empty"),
    ("search", "wind", "--from", "binary"),
    ("search", "wind", "--from", "other", "-c", "nowhere"),
    ("sync", "nowhere"),
    ("remove", "nowhere"),
    ("remove", "discoveries"),
    ("reembed", "--model", "no/such-model"),
    ("tool", "search_create_index", '{"index_name": "docs"}'),
    ("tool", "search_add_document", '{"index_name": "none", "doc_id": "a", "content": "b"}'),
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_refused_command_leaves_the_file_as_it_is(
    project: Path, kb: Run, arguments: tuple[str, ...]
) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    assert kb("record", "We decided to keep the rule.").returncode == 0
    before = content(project)
    done = kb(*arguments)
    assert done.returncode in (1, 2, 3), done.stdout
    assert "--force" not in done.stderr
    assert "internal" not in done.stderr
    assert content(project) == before
    again = kb("sync", "--no-embed")
    assert (again.returncode, again.stdout) == (0, "docs: 2 unchanged (2 documents)\n")


REASONS = [
    (("replicate", "copies", "--stop"), "--stop stands alone"),
    (("eval", "--unrelated", "nowhere"), "nowhere is neither a judged collection nor questions"),
    (("pack", "docs", "-o", "docs.zip"), "docs.zip is not a bundle's name: end it with .tar.gz"),
    (("copy", "id_rsa.txt"), "id_rsa.txt exists already: choose another name or remove it"),
    (("copy", "id_rsa.txt", "--share"), "id_rsa.txt exists already: choose another name"),
    (("add", "docs", "--name", "notes"), 'the collection "notes" is filled by tool calls'),
    (("add", "listed"), 'its hash "md5:00" is none of sha256, sha384 and sha512'),
]


@pytest.mark.parametrize(("arguments", "reason"), REASONS, ids=lambda value: str(value)[:40])
def test_a_refusal_says_why(
    project: Path, kb: Run, arguments: tuple[str, ...], reason: str
) -> None:
    (project / "listed").mkdir()
    (project / "listed" / "a.md").write_text(PAGE)
    listed = {"sources": {"files": [{"path": "a.md", "hash": "md5:00"}]}}
    (project / "listed" / "manifest.json").write_text(json.dumps(listed))
    assert kb("add", "docs", "--no-embed").returncode == 0
    assert kb("tool", "search_create_index", '{"index_name": "notes"}').returncode == 0
    done = kb(*arguments)
    assert done.returncode in (1, 2, 3), done.stdout
    assert reason in done.stdout + done.stderr
    assert (project / "id_rsa.txt").read_text() == "secret"


@pytest.mark.parametrize(
    "configuration",
    [
        "{oops",
        {"project_name": "P"},
        {"project_name": "p", "external_docs": {"path": "../.."}},
        {"project_name": "p", "external_docs": {"path": "./nowhere"}},
        {"project_name": "p", "external_docs": {"path": "./docs", "include_patterns": ["["]}},
    ],
    ids=["no json", "bad name", "outside", "missing folder", "bad glob"],
)
def test_an_activation_with_a_bad_configuration_changes_nothing(
    project: Path, kb: Run, configuration: object
) -> None:
    configure(project, {"project_name": "p", "external_docs": {"path": "./other"}})
    assert kb("tool", "activate_project", "{}").returncode == 0
    before = content(project)
    configure(project, configuration)
    done = kb("tool", "activate_project", "{}")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (1, True)
    assert content(project) == before


def test_an_emptied_folder_keeps_its_documents_whatever_is_tried(project: Path, kb: Run) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    before = content(project)
    for file in (project / "docs").iterdir():
        file.unlink()
    for arguments in (
        ("sync",),
        ("add", "docs"),
        ("sync", "docs"),
        ("search", "x", "--from", "docs"),
    ):
        done = kb(*arguments, "--no-embed")
        assert done.returncode == 3
        assert "2 documents: nothing was changed" in done.stderr
        assert "--force" not in done.stderr
        assert content(project) == before


def test_a_change_that_works_is_kept(project: Path, kb: Run) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    done = kb("add", "docs", "--include", "a.*", "--kind", "archive", "--no-embed")
    assert (done.returncode, done.stdout) == (0, "docs: 1 updated, 1 removed (1 document)\n")
    assert kb("sync", "--no-embed").stdout == "docs: 1 unchanged (1 document)\n"
    assert '"archive"' in kb("list", "--json").stdout


def test_other_collections_are_not_embedded_by_an_addition(project: Path, kb: Run) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    assert kb("add", "empty").returncode == 1
    done = kb("add", "other")
    assert "1 passage embedded" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["add", "LONG"],
        ["search", "wind", "--from", "LONG"],
        ["move", "docs", "LONG"],
        ["copy", "LONG"],
        ["split", "LONG", "docs"],
        ["merge", "LONG"],
        ["pack", "LONG"],
        ["pack", "docs", "-o", "LONG"],
        ["graph", "-o", "LONG"],
        ["grep", "wind", "--db", "LONG"],
        ["get", "LONG"],
        ["serve", "--root", "LONG"],
    ],
)
def test_a_name_that_is_too_long_for_the_system_is_refused_in_one_line(
    kb: Run, project: Path, command: list[str]
) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    before = content(project)
    said = kb(*[word.replace("LONG", "x" * 5000) for word in command])
    assert said.returncode in (1, 2, 3)
    assert "internal error" not in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert content(project) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place where nobody may write")
@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["copy"], "/proc/x.db"),
        (["copy", "--share"], "/proc/x.db"),
        (["pack", "docs", "-o"], "/proc/x.tar.gz"),
        (["graph", "--format", "html", "-o"], "/proc/x.html"),
        (["split"], "/proc/x.db"),
    ],
)
def test_what_cannot_be_written_is_named_as_it_was_typed(
    kb: Run, command: list[str], place: str
) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    said = kb(*command, place, *(["docs"] if command == ["split"] else []))
    assert said.returncode == 3
    assert f"{place}" in said.stderr.replace(f"{place}.", "another ")
    assert "internal error" not in said.stderr


def test_recall_says_that_nothing_is_recorded(kb: Run) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    said = kb("recall")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.endswith("kb: nothing is recorded yet: `kb record TEXT` does it\n")
    asked = kb("recall", "how often do we retry?")
    assert (asked.returncode, asked.stderr) == (said.returncode, said.stderr)
    assert json.loads(kb("recall", "anything", "--json").stdout) == {"results": [], "totalFound": 0}


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--http", "x:y"],
        ["serve", "--http", "0.0.0.0:0"],
        ["serve", "--access-log", "log"],
        ["serve", "--tools", "nothing"],
        ["ui", "--http", "0.0.0.0"],
        ["ui", "--port", "0"],
        ["ui", "--port", "65536"],
        ["token", "add"],
        ["merge", ".kb/kb.db"],
    ],
    ids=" ".join,
)
def test_a_refused_command_leaves_no_new_file_behind(
    command: list[str], kb: Run, project: Path
) -> None:
    outcome = kb(*command)
    assert outcome.returncode == 2
    assert "kb" in outcome.stderr
    assert not (project / ".kb").exists()


def test_where_nothing_is_stored_a_missing_document_says_how_to_begin(
    kb: Run, project: Path
) -> None:
    assert kb("add", "docs", "--no-embed").returncode == 0
    assert "kb add" not in kb("get", "nowhere.md").stderr
    assert kb("remove", "docs").returncode == 0
    for command in (["get"], ["outline"], ["cite"], ["related"]):
        outcome = kb(*command, "a.md")
        assert outcome.returncode == 1
        assert "`kb add FOLDER`" in outcome.stderr
