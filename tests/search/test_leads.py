"""Passages cut from tables, lists and code carry what they need; text without words makes none."""

from __future__ import annotations

import base64
import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from support import ROOT, Filler, HashEmbedder, call

from kb.formats.wordless import wordless_ranges
from kb.store.database import Database

ROWS = [f"| harbour{number} | {number} m | {number * 3} boats |" for number in range(200)]
TABLE = "\n".join(["# Harbours", "", "| place | depth | berths |", "|---|---|---|", *ROWS])
DATA = base64.b64encode(random.Random(1).randbytes(6000)).decode()
WRAPPED = "\n".join(DATA[i : i + 76] for i in range(0, len(DATA), 76))
MINIFIED = "!function(e,t){var n=t.a;e.b=function(r){return n(r)||{}};};" * 40


def test_a_row_of_a_long_table_is_found_and_shown_with_its_header(
    fill: Filler, embedder: HashEmbedder
) -> None:
    kb = fill({"harbours.md": TABLE})
    row = call(kb, "documents_search", query="berths harbour150", limit=1)["results"][0]
    first, second, *_ = row["content"].splitlines()
    assert first == "| place | depth | berths |"
    assert second == TABLE.splitlines()[row["startLine"] - 1]
    assert row["content"].splitlines()[-1] == TABLE.splitlines()[row["endLine"] - 1]
    assert ROWS[150] in row["content"]
    assert any(text.endswith(row["content"]) for text in embedder.texts)
    held = call(kb, "documents_search", query='+harbour150 "place depth berths"')["results"]
    assert [one["startLine"] for one in held] == [row["startLine"]]


def test_an_exact_phrase_does_not_reach_from_the_header_into_a_row(fill: Filler) -> None:
    kb = fill({"harbours.md": TABLE})
    chunks = call(kb, "documents_search", query="+berths", limit=100)["results"]
    start = next(one for one in chunks if one["startLine"] > 10)["content"].splitlines()[1]
    phrase = f'+"berths {start.split()[1]}"'
    assert call(kb, "documents_search", query=phrase)["results"] == []


def test_the_index_stays_whole_when_a_document_with_leads_changes_or_goes(
    fill: Filler,
) -> None:
    kb = fill({"harbours.md": TABLE, "other.md": "Other text."})
    fill({"harbours.md": TABLE.replace("berths", "moorings")})
    assert call(kb, "documents_search", query="+berths")["results"] == []
    assert call(kb, "documents_search", query="+moorings +harbour150")["results"]
    with kb.database.write() as connection:
        connection.apsw.execute(
            "INSERT INTO keyword_index (keyword_index) VALUES ('integrity-check')"
        )


@pytest.mark.parametrize("data", [DATA, WRAPPED, MINIFIED, DATA.encode().hex()])
def test_text_without_words_is_stored_but_makes_no_passage(fill: Filler, data: str) -> None:
    text = f"# Assets\n\nThe logo of the harbour.\n\n{data}\n\nThe end of it.\n"
    kb = fill({"assets.md": text, "data.txt": data})
    rows = call(kb, "documents_search", query="logo end", limit=100)["results"]
    assert sorted(row["content"] for row in rows) == [
        "# Assets\n\nThe logo of the harbour.",
        "The end of it.",
    ]
    kept = call(kb, "documents_get_document", collection="docs", document="assets.md", endLine=9)
    assert data.splitlines()[0] in kept["content"]


@pytest.mark.parametrize(
    "text",
    [
        "Prose of many words that goes on and on. " * 50,
        "https://example.org/" + "guide/of-the-harbour/for_boats/" * 12,
        '{"name":"harbour","boats":["red","blue"],"deep":true},' * 30,
        "name,place,depth,berths,harbour,boats,colour," * 30,
        " ".join(f"w{number}" for number in range(400)),
        "C:\\Program Files\\Harbour\\bin\\harbour.exe",
        "全文検索の仕組みを説明します" * 40,
        "😀" * 300,
        "a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
        "| 2019 | 3.5 | 4.1 |\n" * 60,
    ],
)
def test_names_values_and_other_scripts_are_words(text: str) -> None:
    assert wordless_ranges(text) == []


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=2000), st.integers(0, 3))
def test_stretches_without_words_are_in_order_and_apart(text: str, copies: int) -> None:
    text = text + "".join(f"{DATA[:400]}{text}" for _ in range(copies))
    ranges = wordless_ranges(text)
    ends = [-1, *(end for _, end in ranges)]
    assert all(end < start < stop for end, (start, stop) in zip(ends, ranges, strict=False))


def test_an_older_file_gets_its_leads_at_the_next_sync(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress((ROOT / "fixtures" / "version-3.db.gz").read_bytes()))
    with Database(path) as database, database.read() as connection:
        hashes = connection.apsw.execute(
            "SELECT DISTINCT content_hash FROM documents JOIN collections USING (collection_id) "
            "WHERE source <> ''"
        ).fetchall()
    assert hashes == [(b"",)]
