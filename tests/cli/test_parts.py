"""Several files on the command line: read as one, split and merged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kb.cli.main import main
from kb.models.embedder import BUILDS, BUNDLED_MODEL

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command where two files lie: `a.db` holds a.md of `notes`, `b.db` b.md of `other`."""
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return int(str(ended.value.code)), *capsys.readouterr()

    for name, collection in (("a", "notes"), ("b", "other")):
        folder = tmp_path / collection
        folder.mkdir()
        (folder / f"{name}.md").write_text(f"# Page {name}\n\nThe kettle of {name} boils.\n")
        assert run_command("--db", f"{name}.db", "add", str(folder), "--no-embed")[0] == 0
    return run_command


def test_every_occurrence_of_the_option_is_a_file(run: Run) -> None:
    for before, after in (
        (["--db", "a.db", "--db", "b.db"], []),
        (["--db", "a.db"], ["--db=b.db"]),
    ):
        code, out, _ = run(*before, "list", *after)
        assert code == 0
        assert [line.split("\t")[0] for line in out.splitlines()] == ["notes", "other"]


def test_search_get_cite_and_status_read_all_files(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.pathsep", ":")
    monkeypatch.setenv("KB_DB", "a.db:b.db:gone.db")
    code, out, errors = run("search", "kettle", "--format", "files")
    assert code == 0
    assert {Path(line.split(":")[0]).name for line in out.splitlines()} == {"a.md", "b.md"}
    assert "gone.db" in errors
    assert "kettle of b" in run("get", "b.md")[1]
    code, out, errors = run("status", "--json")
    assert out.count('"documents": 1') == 4  # of each file and its collection
    assert "gone.db" in errors


def test_where_the_first_file_is_damaged_the_next_one_answers_and_nothing_is_written(
    run: Run,
) -> None:
    Path("bad.db").write_bytes(b"nothing of ours" * 100)
    both = ("--db", "bad.db", "--db", "b.db")
    code, out, errors = run(*both, "search", "kettle")
    assert code == 0
    assert "kettle of b" in out
    assert "bad.db" in errors
    before = Path("b.db").read_bytes()
    code, _, errors = run(*both, "record", "We use kettles for calibration")
    assert code == 3
    assert "bad.db" in errors
    assert Path("b.db").read_bytes() == before


def test_split_and_merge_move_collections(run: Run) -> None:
    assert run("--db", "a.db", "merge", "b.db")[0] == 0
    assert [line.split("\t")[0] for line in run("--db", "a.db", "list")[1].splitlines()] == [
        "notes",
        "other",
    ]
    assert run("--db", "b.db", "list")[0] == 1
    assert run("--db", "a.db", "split", "c.db", "wrong")[0] == 1
    assert not Path("c.db").exists()
    assert run("--db", "a.db", "split", "c.db", "other")[0] == 0
    assert "kettle of b" in run("--db", "c.db", "get", "b.md")[1]
    assert run("--db", "a.db", "get", "b.md")[0] == 1
    assert run("--db", "a.db", "merge", "a.db")[0] == 2


def test_vectors_of_an_earlier_build_of_the_model_are_merged_with_newer_ones(run: Run) -> None:
    for name in ("a", "b"):
        assert run("--db", f"{name}.db", "sync")[0] == 0
    earlier = BUILDS[BUNDLED_MODEL][1]
    with closing(sqlite3.connect("a.db")) as plain, plain:
        plain.execute("UPDATE models SET sha256 = ?", (earlier,))
    assert run("--db", "a.db", "merge", "b.db")[0] == 0
    status = json.loads(run("--db", "a.db", "status", "--json")[1])
    assert (status["chunks"], status["vectors"]) == (2, 2)
