"""Several files on the command line: read as one, split and merged."""

from __future__ import annotations

import json
import sqlite3
import stat
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


def test_a_moved_passage_keeps_what_stands_in_front_of_it(run: Run, tmp_path: Path) -> None:
    table = "| Winch | Load |\n|---|---|\n" + "| A winch of the port side | 40 kN |\n" * 200
    (tmp_path / "other" / "b.md").write_text(f"# Winches\n\n{table}")
    assert run("--db", "b.db", "sync")[0] == 0

    def passages(file: str) -> list[tuple[bytes, int, int]]:
        with closing(sqlite3.connect(file)) as plain:
            return plain.execute(
                "SELECT text_hash, vector_id IS NULL, chunk_leads.end_character FROM chunks "
                "LEFT JOIN chunk_leads USING (chunk_id) ORDER BY chunk_id"
            ).fetchall()

    before = passages("b.db")
    assert any(end for *_, end in before)
    assert run("--db", "b.db", "split", "c.db", "other")[0] == 0
    assert passages("c.db") == before


def test_vectors_of_an_earlier_build_of_the_model_are_merged_with_newer_ones(run: Run) -> None:
    for name in ("a", "b"):
        assert run("--db", f"{name}.db", "sync")[0] == 0
    earlier = BUILDS[BUNDLED_MODEL][1]
    with closing(sqlite3.connect("a.db")) as plain, plain:
        plain.execute("UPDATE models SET sha256 = ?", (earlier,))
    assert run("--db", "a.db", "merge", "b.db")[0] == 0
    status = json.loads(run("--db", "a.db", "status", "--json")[1])
    assert (status["chunks"], status["vectors"]) == (2, 2)


def test_a_file_that_is_named_twice_is_read_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.db").symlink_to("a.db")
    for other in ("./a.db", str(tmp_path / "a.db"), "link.db"):
        assert run("--db", "a.db", "--db", other, "list") == run("--db", "a.db", "list")
        monkeypatch.setenv("KB_DB", f"a.db:{other}")
        assert run("list") == run("--db", "a.db", "list")


def test_copies_and_parts_of_a_private_file_are_private(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.db").chmod(0o600)
    for arguments in (
        ["copy", "copy.db"],
        ["copy", "shared.db", "--share"],
        ["split", "part.db", "notes"],
    ):
        assert run("--db", "a.db", *arguments)[0] == 0
        assert stat.S_IMODE((tmp_path / arguments[1]).stat().st_mode) == 0o600
    (tmp_path / "b.db").chmod(0o644)
    assert run("--db", "b.db", "copy", "open.db")[0] == 0
    assert stat.S_IMODE((tmp_path / "open.db").stat().st_mode) == 0o644


def test_a_bundle_that_is_packed_again_keeps_its_permissions(run: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "notes.tar.gz"
    for mode in (0o644, 0o600):
        assert run("pack", "notes", "-o", str(bundle))[0] == 0
        assert stat.S_IMODE(bundle.stat().st_mode) == mode
        bundle.chmod(0o600)
    assert not list(tmp_path.glob(".*part"))
