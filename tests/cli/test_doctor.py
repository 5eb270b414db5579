"""`kb doctor`: what it looks at, its exit codes, and what --fix does."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support


class Outcome(support.Outcome):
    def states(self, check: str) -> list[str]:
        """The states of the findings of one check, of a reply in JSON."""
        return [f["state"] for f in json.loads(self.out)["findings"] if f["check"] == check]

    def messages(self, check: str) -> str:
        found: list[dict[str, Any]] = json.loads(self.out)["findings"]
        return "\n".join(f["message"] for f in found if f["check"] == check)


Run = Callable[..., Outcome]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with some documents, as the working directory."""
    folder = tmp_path / "station"
    (folder / ".git").mkdir(parents=True)
    (folder / "docs").mkdir()
    for name in ("wind", "rain", "mast"):
        (folder / "docs" / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kb(run: support.Run) -> Run:
    """Run one command in this process."""
    return lambda *arguments: Outcome(*run(*arguments))


@pytest.fixture
def file(project: Path, kb: Run) -> Path:
    """The project's knowledge base, with vectors."""
    assert kb("add", "docs").code == 0
    return project / ".kb" / "kb.db"


def run_sql(file: Path, statement: str) -> None:
    """What somebody does in another program."""
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_sound_file_ends_with_zero_and_hints_are_allowed(kb: Run, file: Path) -> None:
    outcome = kb("doctor", "--json")
    assert outcome.code == 0, outcome.out
    result = json.loads(outcome.out)
    assert result["sound"]
    assert {finding["check"] for finding in result["findings"]} >= {
        *("environment", "SQLite", "ripgrep", "pages", "rows", "keyword index", "vectors", "log"),
        *("model", "models", "collections", "secrets", "configuration", "clients"),
    }
    assert outcome.states("clients") == ["hint"]  # nothing is installed here
    assert all(f.get("remedy") for f in result["findings"] if f["state"] == "broken")
    text = kb("doctor")
    assert text.code == 0
    assert "all is sound" in text.errors
    assert len(kb("doctor", "--quiet").out) < len(text.out)


def test_without_a_file_it_says_how_to_begin(kb: Run, project: Path) -> None:
    outcome = kb("doctor", "--json")
    assert outcome.code == 0
    assert "there is no knowledge base" in outcome.messages("file")
    assert not (project / ".kb").exists()


def test_what_is_broken_ends_with_three_and_is_mended(kb: Run, file: Path) -> None:
    run_sql(file, "DELETE FROM documents WHERE path = 'rain.md'")
    run_sql(file, "UPDATE vectors SET vector = x'00'")
    outcome = kb("doctor", "--json")
    assert outcome.code == 3
    assert "broken" in outcome.states("rows")
    assert "broken" in outcome.states("vectors")
    text = kb("doctor")
    assert "--fix mends" in text.errors
    assert "BROKEN" in text.out
    mended = kb("doctor", "--fix")
    assert mended.code == 0, mended.out
    assert "mended: orphans" in mended.out
    assert "got a vector" in mended.out
    assert kb("doctor").code == 0
    assert kb("sync").code == 0  # the document that was deleted by hand is stored again
    assert "rain.md" in kb("search", "about rain", "--format", "files").out


def test_a_damaged_file_is_told_and_nothing_else_breaks(kb: Run, file: Path) -> None:
    content = file.read_bytes()
    for damaged, expected in ((content[:-5000], "missing at its end"), (b"", "is empty")):
        file.write_bytes(damaged)
        outcome = kb("doctor", "--json")
        assert outcome.code == 3
        assert expected in outcome.messages("file")
        assert outcome.states("environment") == ["sound"]
        for command in (("sync",), ("status",), ("search", "wind"), ("doctor", "--fix")):
            assert kb(*command).code == 3, command
    file.write_bytes(content)
    assert kb("doctor").code == 0


def test_a_value_that_no_column_may_hold_is_told(kb: Run, file: Path) -> None:
    schema = "UPDATE sqlite_schema SET sql = replace(sql, '{}', '{}') WHERE name = 'documents'"
    strict, loose = "content         TEXT NOT NULL", "content         TEXT"
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(schema.format(strict, loose))
    connection.execute("PRAGMA writable_schema = RESET")
    connection.execute("UPDATE documents SET content = NULL WHERE path = 'rain.md'")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(schema.format(loose, strict))
    connection.close()
    said = kb("doctor", "--json")
    assert said.code == 3
    assert "broken" in said.states("file")
    assert "internal error" not in said.errors


def test_a_wrong_or_missing_model_is_told_by_every_command(kb: Run, file: Path) -> None:
    run_sql(file, "UPDATE models SET sha256 = 'another'")
    for command, code in ((("sync",), 3), (("status",), 0), (("list",), 0), (("doctor",), 3)):
        outcome = kb(*command)
        assert outcome.code == code, command
        assert "another build" in outcome.errors + outcome.out
    run_sql(file, "DELETE FROM models")
    for command, code in ((("sync",), 3), (("search", "wind"), 0), (("doctor",), 3)):
        outcome = kb(*command)
        assert outcome.code == code, command
        assert "kb reembed" in outcome.errors + outcome.out
    problems = json.loads(kb("status", "--json").out)["problems"]
    assert [problem["check"] for problem in problems] == ["model"]
    assert kb("reembed").code == 0
    assert kb("sync").code == 0


def test_collections_that_are_not_as_their_folder_are_hints(kb: Run, file: Path) -> None:
    (Path("docs") / "new.md").write_text("# New\n")
    (Path("docs") / "wind.md").write_text("# Wind\n\nAnother text.\n")
    (Path("docs") / "rain.md").unlink()
    (Path("docs") / "bad.md").write_bytes(b"\x00\x01\x02" * 100)
    (Path("docs") / "key.md").write_text("password: hunter2xyz\n")
    outcome = kb("doctor", "--json")
    assert outcome.code == 0
    (message,) = outcome.messages("collections").splitlines()
    assert "2 new (key.md, new.md), 1 changed (wind.md), 1 gone (rain.md)" in message
    assert "bad.md" in outcome.messages("skipped files")
    kb("sync")
    outcome = kb("doctor", "--json")
    assert outcome.states("collections") == ["sound"]
    assert "docs/key.md:1 (" in outcome.messages("secrets")
    assert "hunter2xyz" not in outcome.out
    Path("docs").rename("moved")
    outcome = kb("doctor", "--json")
    assert outcome.code == 0
    assert "not on this machine" in outcome.messages("collections")


def test_passages_without_vectors_are_a_hint_that_fix_sees_to(kb: Run, project: Path) -> None:
    kb("add", "docs", "--no-embed")
    outcome = kb("doctor", "--json")
    assert outcome.code == 0
    assert "3 passages have no vector" in outcome.messages("vectors")
    assert json.loads(kb("doctor", "--fix", "--json").out)["fixed"] == ["3 passages got a vector"]
    assert "have no vector" not in kb("doctor").out


def test_broken_configuration_is_a_hint(
    kb: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("kb.json").write_text('{"collections": {"d": "docs", "x": "nowhere"}}')
    Path(".kb/config.json").write_text('{"project_name": "No Good"}')
    monkeypatch.setenv("RESEARCH_ARCHIVE_PATH", "/nowhere/at/all")
    outcome = kb("doctor", "--json")
    assert outcome.code == 0
    messages = outcome.messages("configuration")
    assert '"nowhere"' in messages
    assert "project_name" in messages
    assert "RESEARCH_ARCHIVE_PATH" in messages


def test_of_several_files_in_a_variable_the_missing_one_is_told(
    kb: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_DB", f"{file}:gone.db")
    messages = kb("doctor", "--json").messages("configuration")
    assert messages == "KB_DB names gone.db, which does not exist"


def test_clients_are_asked_whether_their_server_answers(kb: Run, file: Path) -> None:
    assert kb("install", "cursor", "--no-check").code == 0
    outcome = kb("doctor", "--json")
    assert outcome.states("clients") == ["sound"]
    assert "answered in" in outcome.messages("clients")
    config = Path.home() / ".cursor" / "mcp.json"
    entry = json.loads(config.read_text())
    entry["mcpServers"]["kb"]["command"] = "/opt/gone/kb"
    config.write_text(json.dumps(entry))
    outcome = kb("doctor", "--json")
    assert outcome.code == 3
    assert outcome.states("clients") == ["broken"]
    assert "kb install cursor" in outcome.out
    config.write_text("{")
    assert kb("doctor", "--json").states("clients") == ["hint", "hint"]


def test_of_a_large_file_only_samples_are_looked_at_until_all_is_asked_for(
    kb: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.library.health.WHOLE_BYTES", 0)
    run_sql(file, "DELETE FROM documents WHERE path = 'rain.md'")
    look = kb("doctor", "--json")
    assert look.code == 3
    assert "a quick look" in look.messages("file")
    assert "1 belong to nothing" in look.messages("rows")
    assert not look.states("secrets")
    full = kb("doctor", "--full", "--json")
    assert "looked through" in full.messages("file")
    assert full.states("secrets") == ["sound"]
    assert kb("doctor", "--fix").code == 0
    look = kb("doctor", "--json")
    assert look.code == 0
    assert "2 documents and 2 passages counted, 2 looked at" in look.messages("file")


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        ("UPDATE vectors SET vector = x'00'", "vectors"),
        ("UPDATE vector_slabs SET signs = x'00'", "vectors"),
        ("DELETE FROM keyword_index_docsize", "keyword index"),
        (
            "UPDATE documents SET content = upper(replace(content, 'bout', 'round'))",
            "keyword index",
        ),
    ],
)
def test_samples_show_damage_of_the_whole_file_which_is_mended(
    kb: Run, file: Path, monkeypatch: pytest.MonkeyPatch, damage: str, check: str
) -> None:
    monkeypatch.setattr("kb.library.health.WHOLE_BYTES", 0)
    assert kb("doctor").code == 0
    run_sql(file, damage)
    assert kb("doctor", "--json").states(check) == ["broken"]
    assert kb("doctor", "--fix").code == 0
    assert kb("doctor", "--json").states(check) == []


def test_copies_are_listed_by_bytes_and_by_name(kb: Run, project: Path) -> None:
    docs = project / "docs"
    assert kb("add", "docs").code == 0
    assert kb("doctor", "--json").states("copies") == []
    (docs / "breeze.md").write_text((docs / "wind.md").read_text())
    (docs / "rain (conflicted copy 2026-01-02).md").write_text("# Rain\n\nEdited elsewhere.\n")
    assert kb("sync").code == 0
    outcome = kb("doctor", "--json")
    assert (outcome.code, outcome.states("copies")) == (0, ["hint"])
    assert outcome.messages("copies") == (
        "2 documents with copies: docs/breeze.md = docs/wind.md, "
        "docs/rain (conflicted copy 2026-01-02).md = docs/rain.md"
    )
