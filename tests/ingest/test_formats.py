"""A folder in many formats, from empty to searched, read and synced again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Filler, call

from kb.cli.main import main
from kb.errors import SourceError
from kb.formats.convert import formats as formats_module

FIXTURES = ROOT / "fixtures" / "formats"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder `docs`, in which we stand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    docs = tmp_path / "docs"
    docs.mkdir()
    return docs


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / Path(name).name, folder / name)


def rows(capsys: pytest.CaptureFixture[str], query: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    run("--json", "search", query, "-n", "50", "--min-score", "0")
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return found


def test_documents_in_other_formats_are_found_with_their_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["docx", "pptx", "xlsx", "pdf", "html", "epub", "ipynb", "eml"]
    put(folder, *(f"harbour.{suffix}" for suffix in names), "man/harbour.1")
    assert run("add", "docs", "--no-embed") == 0
    assert "9 added" in capsys.readouterr().out
    by_document = {row["documentId"]: row for row in rows(capsys, "+ladder")}
    assert by_document.keys() == {
        *(f"harbour.{suffix}" for suffix in ("docx", "pptx", "pdf", "html", "epub", "ipynb")),
        "man/harbour.1",
    }
    assert by_document["harbour.pdf"]["page"] == 2
    assert by_document["harbour.pptx"]["slide"] == 3
    assert by_document["harbour.ipynb"]["cell"] == 1
    assert "page" not in by_document["harbour.html"]
    (fees,) = rows(capsys, "pilotage")
    assert (fees["documentId"], fees["sheet"]) == ("harbour.xlsx", "Fees")
    capsys.readouterr()
    assert run("search", "+ladder", "-c", "docs") == 0
    assert "docs/harbour.pdf:10-12 (page 2)" in capsys.readouterr().out


def test_what_a_glob_takes_in_is_read_as_what_it_looks_like(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plan.qmd").write_text("# Plan\n\nropes\n")
    (folder / "part.Asc").write_text("== Part\n\nropes\n")
    (folder / "notes.log").write_text("# Notes\n\nropes and masts\n")
    (folder / "run.log").write_text("10:00 ropes\n# 10:01\n# masts\n")
    (folder / "saved.php").write_text(f"<!DOCTYPE html>\n<h1>Saved</h1><p>{'ropes ' * 50}</p>")
    (folder / "tool.man").write_text('.\\" of a tool\n.TH TOOL 1\n.SH NAME\ntool \\- ropes\n')
    (folder / "data.bin").write_text("ropes")
    assert run("add", "docs", "--no-embed") == 0
    told = capsys.readouterr()
    assert "2 added" in told.out
    assert "left out for their formats: 2 .log, 1 .bin, 1 .man, 1 .php" in told.err
    assert run("add", "docs", "--no-embed", "--include", "**/*.{log,php,man,qmd,Asc}") == 0
    told = capsys.readouterr()
    assert "4 added" in told.out
    assert "left out" not in told.err
    headings = {row["documentId"]: row.get("sectionHeading") for row in rows(capsys, "+ropes")}
    assert headings == {
        "plan.qmd": "Plan",
        "part.Asc": "Part",
        "notes.log": "Notes",
        "run.log": None,
        "saved.php": "Saved",
        "tool.man": "NAME",
    }


def test_lines_of_a_row_open_at_its_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, "harbour.pdf", "harbour.docx", "harbour.epub", "harbour.pptx")
    run("add", "docs", "--no-embed")
    for row in rows(capsys, "harbour"):
        capsys.readouterr()
        run("get", f"{row['documentId']}:{row['startLine']}-{row['endLine']}")
        assert row["content"] in capsys.readouterr().out


def test_tools_tell_the_page_of_sections_and_lines(fill: Filler) -> None:
    kb = fill({"harbour.pdf": (FIXTURES / "harbour.pdf").read_bytes()}, embed=False)
    there = {"collection": "docs", "document": "harbour.pdf"}
    outline = call(kb, "documents_get_outline", **there)["outline"]
    assert [(row["text"], row["page"]) for row in outline] == [
        ("Harbour manual", 1),
        ("Arrival", 2),
        ("Pilot ladder", 2),
        ("Mooring", 3),
        ("Tide service", 4),
        ("Departure", 5),
    ]
    section = call(kb, "documents_get_section", **there, section="Mooring")
    assert section["page"] == 3
    assert "endPage" not in section
    whole = call(kb, "documents_get_section", **there, section="Harbour manual")
    assert (whole["page"], whole["endPage"]) == (1, 5)
    start = outline[-1]["line"]
    assert call(kb, "documents_get_document", **there, startLine=start)["page"] == 5
    assert "page" not in call(kb, "documents_get_document", **there)


def test_an_unchanged_file_is_not_converted_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "harbour.docx")
    run("add", "docs", "--no-embed")
    monkeypatch.setattr("kb.formats.convert.process._start", None)  # no child could be started
    (folder / "harbour.docx").touch()
    capsys.readouterr()
    assert run("sync", "--no-embed") == 0
    assert "1 unchanged" in capsys.readouterr().out


def test_a_changed_file_replaces_text_and_places(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "harbour.pdf")
    run("add", "docs", "--no-embed")
    shutil.copy(FIXTURES / "harbour.docx", folder / "harbour.pdf")
    capsys.readouterr()
    run("sync", "--no-embed")
    assert "docs: harbour.pdf: is damaged or not a PDF file" in capsys.readouterr().err
    assert rows(capsys, "+ladder")[0]["page"] == 2  # what is stored stays
    (folder / "harbour.pdf").unlink()
    put(folder, "harbour.docx")
    run("sync", "--no-embed")
    assert [row["documentId"] for row in rows(capsys, "+ladder")] == ["harbour.docx"]


def test_one_bad_file_of_each_format_stops_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in formats_module.FORMATS:
        for suffix in kind.suffixes:
            (folder / f"bad{suffix}").write_bytes(b"\x00\xff\x00" * 50)
    put(folder, "harbour.html")
    assert run("add", "docs", "--no-embed") == 0
    out = capsys.readouterr()
    bad = sum(len(kind.suffixes) for kind in formats_module.FORMATS)
    assert f"1 added, {bad} failed" in out.out
    told = [line for line in out.err.splitlines() if not re.search("navigation|documents:", line)]
    assert len(told) == bad


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As in an installation without the extra; call to install it."""
    monkeypatch.setattr(formats_module, "_is_installed", lambda module: False)
    return monkeypatch.undo


def test_without_the_extra_one_line_says_what_was_left_out_and_what_adds_it(
    folder: Path, capsys: pytest.CaptureFixture[str], without_extra: Callable[[], None]
) -> None:
    put(folder, "harbour.pdf", "harbour.docx", "harbour.md", "a/harbour.pdf")
    assert run("add", "docs", "--no-embed") == 0
    out = capsys.readouterr()
    assert "1 added" in out.out
    assert out.err == (
        "kb: docs: left out: 2 PDF, 1 Word; `pip install 'kbfile[formats]'` adds these formats\n"
    )


def test_documents_are_kept_where_the_extra_is_missing_later(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "harbour.pdf", "harbour.md")
    run("add", "docs", "--no-embed")
    monkeypatch.setattr(formats_module, "_is_installed", lambda module: False)
    assert run("sync", "--no-embed") == 0
    assert "2 documents" in capsys.readouterr().out


def test_a_single_file_without_the_extra_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], without_extra: Callable[[], None]
) -> None:
    put(folder, "harbour.pdf")
    assert run("add", "docs/harbour.pdf", "--no-embed") == 3
    assert "pip install 'kbfile[formats]'" in capsys.readouterr().err
    assert SourceError.code == "FILE_SYSTEM_ERROR"
