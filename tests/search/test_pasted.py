"""Pasted text is text: long queries, quotes of every kind, phrases that are nowhere."""

from typing import Any

import pytest
from support import Filler

from kb.search.query import MAX_CHARACTERS, Operand, match_alternatives, parse_query
from kb.tools.registry import call_tool
from kb.tools.session import Session

PAGES = {
    "pump.md": "# Pump\n\nThe pump said low pressure and stopped at noon.\n",
    "valve.md": "# Valve\n\nA valve opens when the pressure falls.\n",
}


def search(kb: Session, query: str, tool: str = "documents_search") -> Any:
    return call_tool(kb, tool, {"query": query}).content


@pytest.mark.parametrize(
    "quoted",
    ['"low pressure"', "“low pressure”", "„low pressure“", "«low pressure»", "»low pressure«",
     "「low pressure」", "『low pressure』", "＂low pressure＂"],
)  # fmt: skip
def test_quotes_of_every_kind_make_a_phrase(quoted: str) -> None:
    assert parse_query(quoted).must == (Operand("low pressure", is_phrase=True),)


def test_an_apostrophe_quotes_nothing() -> None:
    query = parse_query("the pump’s ‘low’ valve's")
    assert not query.must
    assert len(query.terms) == 4


def test_in_more_than_32_words_signs_and_quotes_mean_nothing() -> None:
    text = '+pump -valve "low pressure" ' + " ".join(f"word{n}" for n in range(40))
    query = parse_query(text)
    assert query.must == query.must_not == ()
    assert {"+pump", "-valve", "low", "pressure"} <= {term.text for term in query.terms}
    assert parse_query('+pump -valve "low pressure"').must


def test_a_phrase_that_is_nowhere_loses_its_quotes(fill: Filler) -> None:
    kb = fill(PAGES)
    found = search(kb, '"pressure low pump"')
    assert found["results"][0]["documentId"] == "pump.md"
    assert "without the quotes" in found["notice"]
    exact = search(kb, '"low pressure"')
    assert [row["documentId"] for row in exact["results"]] == ["pump.md"]
    assert "notice" not in exact


def test_plus_and_minus_stay_enforced_without_the_quotes(fill: Filler) -> None:
    kb = fill(PAGES)
    found = search(kb, '"pressure low" +valve')
    assert [row["documentId"] for row in found["results"]] == ["valve.md"]
    found = search(kb, '"pressure low" -valve')
    assert [row["documentId"] for row in found["results"]] == ["pump.md"]
    assert search(kb, '+"pressure low"')["results"] == []


def test_what_follows_ten_thousand_characters_is_left_out_and_said(fill: Filler) -> None:
    kb = fill(PAGES)
    text = "noon " + "x" * MAX_CHARACTERS + " valve"
    assert "10,000 characters" in search(kb, text)["notice"]
    call_tool(kb, "search_add_document", {"doc_id": "a", "content": "noon"})
    assert "10,000 characters" in search(kb, text, "search_index")["notice"]
    assert "10,000" not in search(kb, "noon")["notice"]  # that some passages wait for vectors


@pytest.mark.parametrize(
    "text",
    [
        '"' + "the pump " * 10_000 + '"',
        " ".join(f"p{n}*" for n in range(500)),
        " ".join(f"word{n}" for n in range(16_000)),
        '"' + "-".join(f"w{n}" for n in range(3_000)) + '"',
        "“" * 20_000,
    ],
)
def test_huge_queries_ask_for_a_bounded_number_of_things(text: str, fill: Filler) -> None:
    query = parse_query(text)
    assert query.must == query.must_not == ()
    assert len(query.terms) <= 300
    assert isinstance(search(fill(PAGES), text)["results"], list)


@pytest.mark.parametrize(
    "text", ["a.b." * 3000, "漢字" * 5000, "風" * 9_000, "🧭" * 5_000, "x" * 9_999]
)
def test_a_pasted_word_of_thousands_of_words_is_no_phrase(text: str) -> None:
    parts = match_alternatives(parse_query(text))
    assert parts
    assert max(len(part.split()) for part in parts) <= 200
