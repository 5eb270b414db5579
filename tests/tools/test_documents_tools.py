"""The documents family answers as its contract says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import WINDROSE, Filler, ordinary_user

from kb.formats.chunk import embedding_text
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.english import EnglishEmbedder
from kb.open_file import load_aliases
from kb.results.base import estimate_tokens
from kb.server.mcp import describe
from kb.tools.registry import call_tool
from kb.tools.session import Session

VANE = "how-to/calibrate the vane.md"


def call(kb: Session, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call that has to succeed."""
    result = call_tool(kb, f"documents_{tool}", arguments)
    assert not result.is_error, result.text
    assert estimate_tokens(result.text) <= kb.reply_tokens * 1.05 + 500
    return result.content


def failure(kb: Session, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call that has to fail."""
    result = call_tool(kb, f"documents_{tool}", arguments)
    assert result.is_error, result.text
    return result.content


def write_aliases(file: Path, **aliases: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"collections": aliases}))


def add_folder(kb: Session, folder: Path, documents: dict[str, str]) -> str:
    """One more collection, named like its folder."""
    folder.mkdir()
    for path, text in documents.items():
        (folder / path).write_text(text)
    report = sync_collection(kb.database, register(kb.database, str(folder)))
    embed_pending(kb.model)
    return report.collection


# ---------------------------------------------------------------- collections and their names


def test_collections_are_listed_with_size_and_description(fill: Filler, folder: Path) -> None:
    kb = fill({"a.md": "# A\n\ntext", "b.md": "# B\n\ntext"})
    assert call(kb, "list_collections") == {
        "collections": [{"collection": "docs", "documentCount": 2}]
    }
    sync_collection(
        kb.database, register(kb.database, str(folder), description="All about A and B")
    )
    (row,) = call(kb, "list_collections")["collections"]
    assert row["description"] == "All about A and B"


def test_file_without_collections_lists_none(kb: Session) -> None:
    assert call(kb, "list_collections") == {"collections": []}
    assert call(kb, "search", query="wind") == {"results": []}
    assert "kb add FOLDER" in failure(kb, "list_documents", collection="docs")["error"]


@pytest.mark.parametrize("file", ["kb.json", "context.json", ".kb/kb.json"])
def test_alias_names_a_collection_and_is_shown(file: str, fill: Filler, tmp_path: Path) -> None:
    write_aliases(tmp_path / file, manual="docs")
    kb = fill({"a.md": "# Alpha\n\nquartz crystal"})
    shown = {"collection": "manual", "collectionId": "docs"}
    (row,) = call(kb, "list_collections")["collections"]
    assert row == {**shown, "documentCount": 1}
    for name in ("manual", "docs"):
        (hit,) = call(kb, "search", query="quartz", collections=[name])["results"]
        assert shown.items() <= hit.items()
        assert shown.items() <= call(kb, "list_documents", collection=name).items()
        document = {"collection": name, "document": "a.md"}
        assert shown.items() <= call(kb, "get_document", **document).items()
        assert shown.items() <= call(kb, "get_outline", **document).items()
        assert shown.items() <= call(kb, "get_section", **document, section="Alpha").items()
        assert call(kb, "find_related", **document)["source"] == {**shown, "document": "a.md"}


def test_alias_of_the_project_wins_over_the_users(
    fill: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_aliases(tmp_path / "config/kb/kb.json", manual="elsewhere", guide={"id": "docs"})
    write_aliases(tmp_path / "kb.json", manual="docs")
    kb = fill({"a.md": "# A"})
    assert call(kb, "list_documents", collection="manual")["total"] == 1
    assert call(kb, "list_documents", collection="guide")["total"] == 1


@pytest.mark.parametrize("file", ["kb.json", "context.json", "config/kb/kb.json"])
@pytest.mark.parametrize(
    "content",
    [
        *(b"[1,2]", b"{oops", b"", b'{"collections": []}', b'{"collections": {"a": 5}}', b"\xff{}"),
        *(b"[" * 50_000, b'{"collections": ' * 20_000, b'{"collections": {"\\ud800": "docs"}}'),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else value,
)
def test_a_broken_alias_file_is_a_notice_and_stops_nothing(
    file: str, content: bytes, fill: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(content)
    kb = fill({"a.md": "# A"})
    assert call(kb, "list_documents", collection="docs")["total"] == 1
    assert str(tmp_path / file) in failure(kb, "list_documents", collection="x")["notice"]
    assert str(tmp_path / file) in describe(kb)


def test_an_unreadable_alias_file_is_a_notice_too(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(open_folder / "config"))
    write_aliases(open_folder / "config/kb/kb.json", guide="docs")
    write_aliases(open_folder / "kb.json", manual="docs")
    (open_folder / "kb.json").chmod(0)
    (open_folder / "config/kb").chmod(0)
    warnings: list[str] = []
    with ordinary_user():
        assert load_aliases(open_folder, warnings.append) == {}
    assert ["permission denied" in warning for warning in warnings] == [True, True]


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("kb.json", '{"colections": {"manual": "docs"}}', "not used: colections; it must hold"),
        ("kb.json", '{"name": "x", "\\ud800": 1, "collections": {}}', "not used: name, ?; it"),
        ("kb.json", '{"$schema": "x", "collections": {}}', ""),
        ("context.json", '{"collection": {"manual": "docs"}}', "not used: collection; it"),
        ("context.json", '{"name": "x", "modules": []}', ""),
    ],
)
def test_keys_of_an_alias_file_that_mean_nothing_are_told(
    tmp_path: Path, file: str, content: str, told: str
) -> None:
    (tmp_path / file).write_text(content)
    warnings: list[str] = []
    assert load_aliases(tmp_path, warnings.append) == {}
    assert [told in warning for warning in warnings] == [True] * bool(told)


def test_a_good_alias_beside_a_bad_one_counts(fill: Filler, tmp_path: Path) -> None:
    write_aliases(tmp_path / "kb.json", manual="docs", other=5)
    assert call(fill({"a.md": "# A"}), "list_documents", collection="manual")["total"] == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_an_alias_file_that_nobody_writes_is_not_waited_for(fill: Filler, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kb.json")
    kb = fill({"a.md": "# A"})
    assert call(kb, "list_documents", collection="docs")["total"] == 1
    assert "not a regular file" in kb.names.notices[0]


def test_unknown_collection_suggests_near_names(fill: Filler) -> None:
    kb = fill({"a.md": "# A"})
    for tool, arguments in (
        ("list_documents", {"collection": "dosc"}),
        ("search", {"query": "a", "collections": ["docs", "dosc"]}),
        ("search_batch", {"queries": [{"query": "a", "collections": ["dosc"]}]}),
        ("get_document", {"collection": "dosc", "document": "a.md"}),
    ):
        error = failure(kb, tool, **arguments)
        assert error["code"] == "COLLECTION_NOT_FOUND"
        assert error["error"] == 'Collection "dosc" not found. Did you mean "docs"?'
        assert error["suggestions"] == ["docs"]


# ---------------------------------------------------------------- lists


def test_documents_are_listed_in_pages_by_id(fill: Filler) -> None:
    kb = fill({f"{name}.md": f"# Title {name}\n" for name in "cadbe"})
    first = call(kb, "list_documents", collection="docs", limit=2)
    assert first == {
        "collection": "docs",
        "documents": [
            {"id": "a.md", "title": "Title a", "size": 10},
            {"id": "b.md", "title": "Title b", "size": 10},
        ],
        "total": 5,
        "hasMore": True,
    }
    last = call(kb, "list_documents", collection="docs", limit=2, offset=4)
    assert [row["id"] for row in last["documents"]] == ["e.md"]
    assert not last["hasMore"]
    behind = call(kb, "list_documents", collection="docs", offset=900)
    assert (behind["documents"], behind["total"], behind["hasMore"]) == ([], 5, False)


def test_documents_are_listed_by_date(fill: Filler) -> None:
    dates = {"a": "2026-03-01", "b": "2026-05-09", "c": "2024-01-31", "d": "2026-05-09"}
    kb = fill({f"{name}.md": f"---\ndate: {dates[name]}\n---\n# {name}\n" for name in dates})
    page = call(kb, "list_documents", collection="docs", sort="date", limit=3)
    shown = [(row["id"], row["date"]) for row in page["documents"]]
    assert shown == [("b.md", "2026-05-09"), ("d.md", "2026-05-09"), ("a.md", "2026-03-01")]
    rest = call(kb, "list_documents", collection="docs", sort="date", offset=3)
    assert [row["id"] for row in rest["documents"]] == ["c.md"]
    new = kb.base.recent(limit=2)
    assert [(one.collection, one.id, one.title, one.date) for one in new.documents] == [
        ("docs", "b.md", "b", "2026-05-09"),
        ("docs", "d.md", "d", "2026-05-09"),
    ]
    assert new.read == []


def test_list_that_is_too_long_is_cut_and_can_be_continued(fill: Filler) -> None:
    kb = fill({f"{number:03}.md": f"# {'long title ' * 10}\n" for number in range(60)}, embed=False)
    kb.reply_tokens = 500
    seen: list[str] = []
    while True:
        page = call(kb, "list_documents", collection="docs", offset=len(seen))
        seen += [row["id"] for row in page["documents"]]
        if not page["hasMore"]:
            break
        assert page["truncated"]
        assert f"offset {len(seen)}" in page["notice"]
    assert seen == [f"{number:03}.md" for number in range(60)]


# ---------------------------------------------------------------- reading a document


def test_document_is_returned_whole(fill: Filler) -> None:
    kb = fill({"sub/a.md": "# A\n\none\n"})
    assert call(kb, "get_document", collection="docs", document="sub/a.md") == {
        "collection": "docs",
        "document": "sub/a.md",
        "title": "A",
        "content": "# A\n\none\n",
        "totalLines": 3,
    }


LINES = "---\ntitle: T\n---\n# A\n\nsix\nseven\n"


@pytest.mark.parametrize(
    "data",
    [
        LINES.encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        LINES.replace("\n", "\r\n").encode(),
        LINES.replace("\n", "\r").encode(),
        LINES.encode("utf-16"),
    ],
    ids=["plain", "BOM", "CRLF", "CR", "UTF-16"],
)
def test_lines_are_the_files_own(data: bytes, fill: Filler) -> None:
    kb = fill({"a.md": data})
    document = {"collection": "docs", "document": "a.md"}
    for first, last, expected in (
        (6, 7, "six\nseven"),
        (6, 6, "six"),
        (0, 1, "---"),
        (4, 5, "# A\n"),
    ):
        part = call(kb, "get_document", **document, startLine=first, endLine=last)
        assert part["content"] == expected
        assert (part["startLine"], part["endLine"]) == (max(first, 1), last)
        assert part["totalLines"] == 7
    assert call(kb, "get_document", **document, startLine=7)["content"].rstrip("\n") == "seven"
    assert call(kb, "get_document", **document, startLine=7, endLine=99)["endLine"] == 7
    outline = call(kb, "get_outline", **document)["outline"]
    assert outline == [{"level": 1, "text": "A", "line": 4}]
    section = call(kb, "get_section", **document, section="A")
    assert (section["startLine"], section["endLine"]) == (4, 7)
    (hit,) = call(kb, "search", query="seven")["results"]
    assert hit["endLine"] == 7


def test_line_range_that_makes_no_sense_is_explained(fill: Filler) -> None:
    kb = fill({"a.md": "one\ntwo\n", "empty.md": ""})
    document = {"collection": "docs", "document": "a.md"}
    assert (
        "before startLine"
        in failure(kb, "get_document", **document, startLine=2, endLine=1)["error"]
    )
    error = failure(kb, "get_document", **document, startLine=3)
    assert error["code"] == "VALIDATION_ERROR"
    assert "the document has 2 lines" in error["error"]
    assert error["totalLines"] == 2
    empty = call(kb, "get_document", collection="docs", document="empty.md")
    assert (empty["content"], empty["totalLines"]) == ("", 0)


def test_missing_document_is_told_exactly_with_near_ids(fill: Filler) -> None:
    kb = fill({"guide/wind.md": "# W", "guide/rain.md": "# R"})
    for tool in ("get_document", "get_outline", "find_related"):
        error = failure(kb, tool, collection="docs", document="guide/win.md")
        assert error["error"] == 'Document "guide/win.md" not found in collection "docs".'
        assert error["code"] == "DOCUMENT_NOT_FOUND"
        assert error["suggestions"][0] == "guide/wind.md"
    assert failure(kb, "get_document", collection="docs", document="wind.md")["suggestions"] == [
        "guide/wind.md"
    ]


@pytest.mark.parametrize(
    "stored", ["caf\u00e9.md", "cafe\u0301.md"], ids=["composed", "decomposed"]
)
@pytest.mark.parametrize("asked", ["caf\u00e9.md", "cafe\u0301.md"], ids=["composed", "decomposed"])
def test_document_is_found_in_either_unicode_form(stored: str, asked: str, fill: Filler) -> None:
    kb = fill({stored: "# C"})
    assert call(kb, "get_document", collection="docs", document=asked)["document"] == stored
    assert call(kb, "get_document", collection="docs", document=f"./{asked}")["title"] == "C"


def read_to_the_end(kb: Session, **arguments: Any) -> tuple[str, int]:
    """A document read as its notices say, and the number of calls."""
    whole, calls, last = "", 0, 0
    while True:
        part = call(kb, "get_document", **arguments)
        # A continuation inside a line joins without a line end.
        joint = "" if not calls or arguments.get("startCharacter") else "\n"
        whole += joint + part["content"]
        calls += 1
        if not part.get("truncated"):
            return whole, calls
        words = part["notice"].split("go on with ")[1].rstrip(".").split(", ")
        arguments |= {"startCharacter": 0}
        arguments |= {word.split()[0]: int(word.split()[1]) for word in words}
        assert arguments["startLine"] >= last
        last = arguments["startLine"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"line {number} of a long document" for number in range(1000)),
        "one line " * 2000,
        "short\n" + "漢字仮名" * 1500 + "\nend\n",
        '"\\' * 3000,
    ],
    ids=["many lines", "one long line", "dense line", "escapes"],
)
def test_huge_document_is_cut_and_can_be_read_to_its_end(text: str, fill: Filler) -> None:
    kb = fill({"a.md": text}, embed=False)
    kb.reply_tokens = 1500
    whole, calls = read_to_the_end(kb, collection="docs", document="a.md")
    assert whole == text
    assert calls > 1


def test_start_character_behind_the_line_is_explained(fill: Filler) -> None:
    kb = fill({"a.md": "one\n"})
    error = failure(kb, "get_document", collection="docs", document="a.md", startCharacter=9)
    assert "line 1, which has 3 characters" in error["error"]


# ---------------------------------------------------------------- outlines and sections


NESTED = """# Guide

intro

## Install

first

### Linux

apt

### macOS

brew

## Use

text

### Linux

run it

```
# no heading
```

## What's new? (2.0)

news
"""


def test_outline_goes_as_deep_as_asked(fill: Filler) -> None:
    kb = fill({"a.md": NESTED + "\n#### Deep\n\n##### Deeper\n\n###### Deepest\n"})
    document = {"collection": "docs", "document": "a.md"}
    by_depth = [
        len(call(kb, "get_outline", **document, maxDepth=depth)["outline"]) for depth in range(1, 7)
    ]
    assert by_depth == [1, 4, 7, 8, 9, 10]
    default = call(kb, "get_outline", **document)
    assert default["title"] == "Guide"
    assert default["outline"][:3] == [
        {"level": 1, "text": "Guide", "line": 1},
        {"level": 2, "text": "Install", "line": 5},
        {"level": 3, "text": "Linux", "line": 9},
    ]
    assert "no heading" not in str(default)


def test_long_outline_is_cut_and_can_be_continued(fill: Filler) -> None:
    kb = fill({"a.md": "".join(f"# Heading {n}\n\ntext\n\n" for n in range(200))}, embed=False)
    kb.reply_tokens = 400
    seen: list[int] = []
    start = 0
    while True:
        part = call(kb, "get_outline", collection="docs", document="a.md", startLine=start)
        seen += [row["line"] for row in part["outline"]]
        if not part.get("truncated"):
            break
        start = int(part["notice"].split("startLine ")[1].split(",")[0])
    assert seen == list(range(1, 800, 4))


def section(kb: Session, wanted: str, **more: Any) -> dict[str, Any]:
    return call(kb, "get_section", collection="docs", document="a.md", section=wanted, **more)


def test_section_goes_to_the_next_heading_of_its_level(fill: Filler) -> None:
    kb = fill({"a.md": NESTED})
    install = section(kb, "Install")
    assert (install["startLine"], install["endLine"], install["level"]) == (5, 15, 2)
    assert install["content"].startswith("## Install\n")
    assert install["content"].endswith("brew")
    alone = section(kb, "Install", includeSubsections=False)
    assert (alone["content"], alone["endLine"]) == ("## Install\n\nfirst", 7)
    last = section(kb, "What's new? (2.0)")
    assert (last["content"], last["endLine"]) == ("## What's new? (2.0)\n\nnews", 31)


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("Linux", 9),
        ("linux!", 9),
        ("WHATS NEW 2.0", 0),
        ("what's new 2 0", 29),
        ("Install > Linux", 9),
        ("Use > Linux", 21),
        ("guide>use>LINUX", 21),
        ("Guide > Linux", 9),
        ("inst", 5),
        ("ew", 29),
        ("Inst > Lin", 9),
        ("gui > use > lin", 21),
        ("Use > Inst", 0),
    ],
)
def test_section_is_found_by_what_it_is_called(wanted: str, line: int, fill: Filler) -> None:
    kb = fill({"a.md": NESTED})
    if line:
        assert section(kb, wanted)["startLine"] == line
    else:
        failure(kb, "get_section", collection="docs", document="a.md", section=wanted)


def test_nearer_match_of_a_heading_wins(fill: Filler) -> None:
    text = "# Setup notes\n\n# setup\n\n# Setup\n\n# A > B\n\n# A\n\n## B\n"
    kb = fill({"a.md": text})
    assert section(kb, "Setup")["startLine"] == 5  # exact
    assert section(kb, "SETUP")["startLine"] == 3  # letters alike
    assert section(kb, "A > B")["startLine"] == 7  # exact, before the path
    assert section(kb, "up not")["startLine"] == 1  # a part


def test_other_headings_that_match_are_named(fill: Filler) -> None:
    kb = fill({"a.md": NESTED})
    found = section(kb, "Linux")
    assert found["section"] == "Linux"
    assert found["alternatives"] == [{"section": "Linux", "level": 3, "startLine": 21}]
    assert "alternatives" not in section(kb, "Use > Linux")


def test_many_alternatives_are_counted_rather_than_listed(fill: Filler) -> None:
    kb = fill({"a.md": "".join("# Example\n\ntext\n\n" for _ in range(500))}, embed=False)
    found = section(kb, "Example")
    assert len(found["alternatives"]) == 20
    assert "479 more headings match" in found["notice"]


def test_missing_section_is_told_exactly_with_near_headings(fill: Filler) -> None:
    kb = fill({"a.md": NESTED, "b.md": "no heading"})
    arguments = {"collection": "docs", "document": "a.md", "section": "Instal Linus"}
    error = failure(kb, "get_section", **arguments)
    assert error["error"] == 'Section "Instal Linus" not found in document "a.md".'
    assert error["code"] == "SECTION_NOT_FOUND"
    assert error["suggestions"]
    for wanted in ("Anything", "?!", ">", " "):
        arguments = {"collection": "docs", "document": "b.md", "section": wanted}
        assert failure(kb, "get_section", **arguments)["code"] == "SECTION_NOT_FOUND"


def test_long_section_is_cut_and_goes_on_in_the_document(fill: Filler) -> None:
    lines = [f"line {number}" for number in range(600)]
    kb = fill({"a.md": "# Top\n\n## Long\n" + "\n".join(lines) + "\n\n## Next\n"}, embed=False)
    kb.reply_tokens = 500
    part = section(kb, "Long")
    assert part["truncated"]
    shown = part["content"].split("\n")
    assert part["endLine"] == part["startLine"] + len(shown) - 1
    assert f"startLine {part['endLine'] + 1}, endLine 603." in part["notice"]
    rest, _ = read_to_the_end(
        kb, collection="docs", document="a.md", startLine=part["endLine"] + 1, endLine=603
    )
    assert [*shown[1:], *rest.split("\n")] == lines


# ---------------------------------------------------------------- search


def test_row_says_where_it_comes_from(windrose: Session) -> None:
    first = call(windrose, "search", query="how do I calibrate the wind vane?")["results"][0]
    assert first["collection"] == "windrose"
    assert first["documentId"] == VANE
    assert first["documentTitle"] == "Calibrate the vane"
    assert 1 <= first["chunkIndex"] <= first["totalChunks"]
    lines = (WINDROSE / VANE).read_text().split("\n")
    there = "\n".join(lines[first["startLine"] - 1 : first["endLine"]])
    assert first["content"].strip() in there
    assert 0 <= first["relevanceScore"] <= 1


def test_distance_is_the_cosine_of_what_was_embedded(
    windrose: Session, model: EnglishEmbedder
) -> None:
    query = "E417 vane offset state directory"
    rows = call(windrose, "search", query=query, limit=30)["results"]
    # From far down the list: rows that keywords alone found.
    with windrose.database.read() as connection:
        headings = {
            (path, position): heading
            for path, position, heading in connection.apsw.execute(
                "SELECT path, position, heading FROM chunk_texts JOIN chunks USING (chunk_id) "
                "JOIN documents ON documents.document_id = chunks.document_id"
            )
        }
    texts = [
        embedding_text(
            row["documentTitle"], headings[row["documentId"], row["chunkIndex"]], row["content"]
        )
        for row in rows
    ]
    cosines = model.embed(texts) @ model.embed([query])[0]
    distances = np.array([row["distance"] for row in rows])
    assert np.abs(1 - cosines - distances).max() < 0.003
    scores = [row["relevanceScore"] for row in rows]
    assert scores == sorted(scores, reverse=True)


def test_distance_is_true_where_only_keywords_found_the_row(fill: Filler, embedder: Any) -> None:
    text = "quagga " + "filler " * 60
    near = {f"{number:03}.md": f"quagga zebra {number}" for number in range(120)}
    kb = fill({**near, "z.md": text})
    rows = call(kb, "search", query="quagga +filler")["results"]
    assert [row["documentId"] for row in rows] == ["z.md"]
    query, passage = embedder.embed(["filler quagga", embedding_text("z", "", text.strip())])
    assert rows[0]["distance"] == pytest.approx(1 - float(query @ passage), abs=0.003)


def test_maximum_distance_leaves_out_what_is_farther(windrose: Session) -> None:
    query = "how do I calibrate the wind vane?"
    rows = call(windrose, "search", query=query, limit=50)["results"]
    middle = sorted(row["distance"] for row in rows)[10]
    near = call(windrose, "search", query=query, limit=50, maxDistance=middle)["results"]
    assert near
    assert max(row["distance"] for row in near) <= middle
    assert call(windrose, "search", query=query, maxDistance=0)["results"] == []


def test_without_hybrid_search_vectors_alone_rank(fill: Filler) -> None:
    kb = fill({"a.md": "quartz", "b.md": "marble", "c.md": "granite"})
    assert len(call(kb, "search", query="quartz", hybridSearch=False)["results"]) == 3
    rows = call(kb, "search", query="quartz rock", hybridSearch=False)["results"]
    distances = [row["distance"] for row in rows]
    assert rows[0]["documentId"] == "a.md"
    assert distances == sorted(distances)


def test_without_vectors_keywords_search_and_say_so_where_meaning_is_asked(fill: Filler) -> None:
    kb = fill({"a.md": "quartz"}, embed=False)
    (row,) = call(kb, "search", query="quartz")["results"]
    assert "distance" not in row
    error = failure(kb, "search", query="quartz", hybridSearch=False)
    assert error["code"] == "EMBEDDING_SERVICE_ERROR"
    assert "kb sync" in error["error"]
    related = call(kb, "find_related", collection="docs", document="a.md")
    assert related["related"] == []
    assert "kb sync" in related["notice"]


def test_search_is_limited_to_the_named_collections(fill: Filler, tmp_path: Path) -> None:
    kb = fill({f"{n}.md": f"quartz crystal number {n}" for n in range(40)})
    small = add_folder(kb, tmp_path / "small", {"only.md": "a different crystal"})
    rows = call(kb, "search", query="quartz crystal", collections=[small])["results"]
    assert [row["documentId"] for row in rows] == ["only.md"]
    for spelling in (small, json.dumps([small]), [small, small]):
        assert call(kb, "search", query="quartz crystal", collections=spelling)["results"] == rows
    everywhere = call(kb, "search", query="crystal", collections=["docs", small], limit=100)
    assert len(everywhere["results"]) == 41


def test_collection_named_like_a_number_can_be_given_as_text(fill: Filler, tmp_path: Path) -> None:
    kb = fill({"a.md": "quartz"})
    add_folder(kb, tmp_path / "2024", {"b.md": "quartz"})
    (row,) = call(kb, "search", query="quartz", collections="2024")["results"]
    assert row["documentId"] == "b.md"


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("水準器", "guide/設置の手引き.md"),
        ("風杯", "guide/設置の手引き.md"),
        ("支線", "guide/設置の手引き.md"),
        ("台風の前", "guide/設置の手引き.md"),
        ("漏斗", "guide/zh-rain-gauge.md"),
        ("蜘蛛网", "guide/zh-rain-gauge.md"),
        ("изморозь", "notes/ru-zimovka.md"),
        ("аккумулятор мороз", "notes/ru-zimovka.md"),
        ("Uhrmacheröl", "how-to/windfahne-kalibrieren.md"),
        ("Landschaftspunkt", "how-to/windfahne-kalibrieren.md"),
    ],
)
def test_page_in_another_language_is_found_by_a_word_inside_a_sentence(
    query: str, document: str, windrose: Session
) -> None:
    rows = call(windrose, "search", query=query, limit=3)["results"]
    assert rows[0]["documentId"] == document
    required = call(windrose, "search", query=f"+{query.split()[0]}", limit=10)["results"]
    assert {row["documentId"] for row in required} == {document}


def test_operators_hold_in_every_search(windrose: Session) -> None:
    rows = call(windrose, "search", query='"wind vane" -battery', limit=50)["results"]
    assert all("battery" not in row["content"].casefold() for row in rows)
    assert call(windrose, "search", query="-wind")["results"] == []
    batch = call(windrose, "search_batch", queries=[{"query": "-wind"}, {"query": "+E417"}])
    assert batch["results"][0]["results"] == []
    assert all("E417" in row["content"] for row in batch["results"][1]["results"])


def test_search_rows_that_do_not_fit_are_left_out_and_counted(windrose: Session) -> None:
    windrose.reply_tokens = 600
    result = call(windrose, "search", query="wind", limit=50)
    assert 1 <= len(result["results"]) < 50
    assert result["truncated"]
    assert f"the best {len(result['results'])} of" in result["notice"]


def test_batch_answers_each_query_as_a_single_search_does(fill: Filler, tmp_path: Path) -> None:
    kb = fill({"a.md": "# A\n\nquartz crystal", "b.md": "# B\n\nmarble stone"})
    other = add_folder(kb, tmp_path / "other", {"c.md": "quartz and marble"})
    queries: list[dict[str, Any]] = [
        {"query": f"{word} {n}", "collections": place}
        for n in range(5)
        for word, place in (("quartz", [other]), ("marble", []))
    ]
    batch = call(kb, "search_batch", queries=queries, limit=2)["results"]
    assert [row["query"] for row in batch] == [query["query"] for query in queries]
    for query, row in zip(queries, batch, strict=True):
        assert row["results"] == call(kb, "search", **query, limit=2)["results"]


def test_batch_accepts_what_careless_clients_send(fill: Filler) -> None:
    kb = fill({"a.md": "quartz crystal"})
    expected = call(kb, "search_batch", queries=[{"query": "quartz"}])
    for queries in (
        [{"query": "quartz", "collections": None}],
        [{"query": "quartz", "collections": '["docs"]'}],
        '[{"query": "quartz"}]',
    ):
        assert call(kb, "search_batch", queries=queries) == expected
    error = failure(kb, "search_batch", queries=[{"query": "a", "colections": []}, "b"])
    assert error["details"]["fieldErrors"] == {
        "queries.0.colections": ['unknown argument, did you mean "collections"?'],
        "queries.1": ["must be an object"],
    }


@pytest.mark.parametrize("count", [0, 11])
def test_batch_takes_one_to_ten_queries(count: int, kb: Session) -> None:
    error = failure(kb, "search_batch", queries=[{"query": "a"}] * count)
    assert error["code"] == "VALIDATION_ERROR"


def test_batch_embeds_all_its_queries_at_once(fill: Filler, embedder: Any) -> None:
    kb = fill({"a.md": "quartz crystal"})
    embedder.texts.clear()
    call(kb, "search_batch", queries=[{"query": f"quartz {n % 3}"} for n in range(10)])
    assert embedder.texts == ["quartz 0", "quartz 1", "quartz 2"]


def test_batch_shares_its_budget_among_its_queries(windrose: Session) -> None:
    windrose.reply_tokens = 3000
    queries = [{"query": word} for word in ("wind", "rain", "battery", "radio", "E417")]
    batch = call(windrose, "search_batch", queries=queries, limit=20)
    assert batch["truncated"]
    assert all(row["results"] for row in batch["results"])


# ---------------------------------------------------------------- related documents


def test_related_documents_are_other_documents_each_once(windrose: Session) -> None:
    found = call(windrose, "find_related", collection="windrose", document=VANE, limit=10)
    assert found["source"] == {"collection": "windrose", "document": VANE}
    documents = [row["document"] for row in found["related"]]
    assert VANE not in documents
    assert len(documents) == len(set(documents)) == 10
    assert "guide/wind.md" in documents[:3]
    for row in found["related"]:
        assert {"collection", "document", "content", "relevanceScore", "distance"} <= row.keys()
        assert row["document"] == row["documentId"]


def test_passage_relates_to_what_it_says(windrose: Session) -> None:
    document = {"collection": "windrose", "document": VANE}
    chunk = "The battery voltage drops in winter when the panel gets no sun."
    rows = call(windrose, "find_related", **document, chunk=chunk, limit=3)["related"]
    assert {"guide/power.md", "how-to/replace-the-battery.md"} & {row["document"] for row in rows}
    with_own = call(windrose, "find_related", **document, sameDocument=True, limit=5)["related"]
    assert VANE in [row["document"] for row in with_own]
    assert len(with_own) == 5


def test_passage_itself_is_not_related_to_itself(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "# One\n\nquartz crystal\n\n# Two\n\nquartz stone\n",
            "b.md": "# One\n\nquartz crystal",
        }
    )
    rows = call(kb, "search", query="crystal", collections=["docs"])["results"]
    own = next(row for row in rows if row["documentId"] == "a.md")
    related = call(
        kb,
        "find_related",
        collection="docs",
        document="a.md",
        chunk=own["content"],
        sameDocument=True,
    )["related"]
    assert (own["documentId"], own["content"]) not in [
        (row["document"], row["content"]) for row in related
    ]


def test_long_document_does_not_hide_the_other_related_ones(fill: Filler) -> None:
    long = "".join(f"# Part {n}\n\nquartz crystal {n}\n\n" for n in range(400))
    kb = fill(
        {
            "a.md": "quartz crystal",
            "long.md": long,
            "c.md": "a quartz field",
            "d.md": "some crystal",
        }
    )
    rows = call(kb, "find_related", collection="docs", document="a.md", limit=3)["related"]
    assert {row["document"] for row in rows} == {"long.md", "c.md", "d.md"}


def test_document_without_text_is_related_to_nothing(fill: Filler) -> None:
    kb = fill({"empty.md": "", "a.md": "quartz"})
    found = call(kb, "find_related", collection="docs", document="empty.md")
    assert found["related"] == []
