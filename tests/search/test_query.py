"""Any text is a valid query; operators mean what they say; nothing reaches FTS5 unquoted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from support import hits_of, search as searched

from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.embedder import Embedder
from kb.search.files import matching
from kb.search.query import match_alternatives, parse_query, quote
from kb.search.rows import load_rows
from kb.store.contents import WHOLE_FILE
from kb.store.database import Database
from kb.text.file_names import clean
from kb.tools.session import Session, open_session

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "query"


class Case(NamedTuple):
    title: str
    query: str
    match: str
    found: list[str]


def read_cases(file: Path) -> list[Case]:
    """Blocks of `# title`, `> query`, `= MATCH expression`, `: documents found`."""
    cases = []
    for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
        title, query, match, found = (line[1:].strip() for line in block.split("\n"))
        cases.append(Case(title, query, match, found.split()))
    return cases


ALL_CASES = [
    pytest.param(case, id=f"{file.stem}: {case.title}")
    for file in sorted(CASES.glob("*.txt"))
    if file.stem != "documents"
    for case in read_cases(file)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The cases' documents, without vectors."""
    folder = tmp_path_factory.mktemp("corpus") / "docs"
    folder.mkdir()
    for line in (CASES / "documents.txt").read_text(encoding="utf-8").splitlines():
        name, text = line.split(" | ")
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    with open_session(Database(folder.parent / "kb.db"), project=folder) as knowledge:
        sync_collection(knowledge.database, register(knowledge.database, str(folder)))
        yield knowledge


def found_by(kb: Session, text: str) -> list[str]:
    """The names of the documents that keywords find, in alphabetical order."""
    with kb.database.read() as connection:
        hits = hits_of(connection, parse_query(text), limit=100)
        rows = load_rows(connection, [hit.chunk_id for hit in hits])
    return sorted({row["document"].removesuffix(".txt") for row in rows})


@pytest.mark.parametrize("case", ALL_CASES)
def test_query_becomes_this_match_and_finds_these_documents(case: Case, corpus: Session) -> None:
    assert " OR ".join(match_alternatives(parse_query(case.query))) == case.match
    assert found_by(corpus, case.query) == case.found


@pytest.mark.parametrize("case", ALL_CASES)
def test_unicode_form_of_a_query_does_not_matter(case: Case, corpus: Session) -> None:
    for form in ("NFC", "NFD"):
        assert found_by(corpus, unicodedata.normalize(form, case.query)) == case.found


SIGNS = st.text(alphabet="+-\"*():^{}[]@?!%/\\'.,;~#&|<>= \t\n\0abAND漢字ｱ한ไ🎉é\u0301\u200d\ud800")


@given(st.one_of(st.text(), SIGNS))
def test_any_text_is_a_valid_query(corpus: Session, text: str) -> None:
    query = parse_query(text)
    with corpus.database.read() as connection:
        for match in (" OR ".join(match_alternatives(query)), quote(query.text)):
            if match:
                matching(connection, match, [WHOLE_FILE])
        hits_of(connection, query)


@given(st.one_of(st.text(), SIGNS))
def test_parsing_a_query_loses_no_word(text: str) -> None:
    query = parse_query(text)
    operands = (*query.terms, *query.must, *query.must_not)
    kept = "".join(operand.text for operand in operands)
    assert {letter for letter in clean(text) if letter.isalnum()} == {
        letter for letter in kept if letter.isalnum()
    }


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"+word{number}" for number in range(1000)),
        " ".join(f"-word{number}" for number in range(1000)) + " wind",
        " ".join(f"word{number}" for number in range(5000)),
        '"' + " ".join(f"word{number}" for number in range(5000)) + '"',
        "+" + "全文検索" * 2000,
        "+" + "全a" * 1000,
        "(" * 5000 + "wind",
        "🎉" * 1000,
    ],
    ids=["musts", "exclusions", "words", "phrase", "run", "mixed run", "brackets", "pictographs"],
)
def test_very_long_query_is_answered(corpus: Session, text: str) -> None:
    with corpus.database.read() as connection:
        hits_of(connection, parse_query(text))


@pytest.mark.parametrize("text", ["", "  ", "*", '""', "?!", "-", "+ -", "-wind", '-"rain gauge"'])
def test_query_that_asks_for_nothing_finds_nothing(windrose: Session, text: str) -> None:
    vector = windrose.model.embed_queries(["wind"])
    assert vector is not None
    with windrose.database.read() as connection:
        assert hits_of(connection, parse_query(text), vector[0]) == []
        assert hits_of(connection, parse_query(text), vector[0], use_words=False) == []


@pytest.mark.parametrize("text", ["", "?!", '-"rain gauge"'])
def test_query_that_asks_for_nothing_loads_no_model(windrose_copy: Path, text: str) -> None:
    def make_embedder(name: str) -> Embedder:
        raise AssertionError(f"{name} was made")

    with open_session(Database(windrose_copy), make_embedder=make_embedder) as kb:
        found = searched(kb, text, collections=["windrose"])
    assert found.rows == []
    assert not found.notice


def test_operators_hold_for_what_vectors_find(windrose: Session) -> None:
    query = parse_query('vane north -offset +"wind"')
    (vector,) = windrose.model.embed_queries([query.words_to_embed]) or []
    with windrose.database.read() as connection:
        for use_words in (True, False):
            hits = hits_of(connection, query, vector, limit=50, use_words=use_words)
            rows = load_rows(connection, [hit.chunk_id for hit in hits])
            tags = {
                row["chunk_id"]: connection.apsw.execute(
                    "SELECT extra FROM chunk_texts WHERE chunk_id = ?", (row["chunk_id"],)
                ).get
                for row in rows
            }
            texts = [
                f"{row['title']} {row['heading_path']} {row['content']} {tags[row['chunk_id']]}"
                for row in rows
            ]
            texts = [text.casefold() for text in texts]
            assert texts
            assert all("wind" in text and "offset" not in text for text in texts)


def test_what_is_embedded_holds_no_operators_and_no_exclusions() -> None:
    assert parse_query('+wind -rain "gust speed" vane').words_to_embed == "wind gust speed vane"
    assert parse_query("why is C++ so fast?").words_to_embed == "why is C++ so fast?"
    assert parse_query("ＡＰＩ of the vane，１２").words_to_embed == "API of the vane,12"
    assert parse_query("🚀 deploy the vane ✨").words_to_embed == "deploy the vane"
    assert parse_query("🚀").words_to_embed == "🚀"
