"""Highlights: whole words, escaped text around, excerpts between words."""

import re
from html import unescape

import pytest
from hypothesis import given, settings, strategies as st

from kb.search.highlight import excerpts, marked, spans
from kb.search.query import parse_query
from kb.store.connection import Connection
from kb.store.database import Database

DATABASE = Database(":memory:")


@pytest.fixture
def connection():
    with DATABASE.read() as connection:
        yield connection


def mark(connection: Connection, text: str, query: str, **options) -> str:
    return marked(text, spans(connection, text, parse_query(query), **options))


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("cat", "A cat, concatenated.", "A <mark>cat</mark>, concatenated."),
        ("running", "She runs and ran.", "She <mark>runs</mark> and ran."),
        ("relatio*", "A relational relation.", "A <mark>relational</mark> <mark>relation</mark>."),
        ('"and/or"', "this and/or that", "this <mark>and/or</mark> that"),
        ('"1.0.21"', "since 1.0.21, not 1.0.2", "since <mark>1.0.21</mark>, not 1.0.2"),
        ("検索", "日本語の全文検索テスト", "日本語の全文<mark>検索</mark>テスト"),
        (
            "全文の検索",
            "日本語の全文検索テスト",
            "日本語の<mark>全文検索</mark>テスト",
        ),
        ("FastAPI", "これはFastAPIのテスト", "これは<mark>FastAPI</mark>のテスト"),
        ("cafe", "Un café noir", "Un <mark>café</mark> noir"),
        ("café", "Un cafe\u0301 noir", "Un <mark>cafe\u0301</mark> noir"),
        ("full", "ｆｕｌｌ width", "<mark>ｆｕｌｌ</mark> width"),
        ("ガス", "都市ｶﾞｽの栓", "都市<mark>ｶﾞｽ</mark>の栓"),
        ("exception", "an HTTPException", "an <mark>HTTPException</mark>"),
        ("😀", "so 😀 today", "so <mark>😀</mark> today"),
        (
            "C",
            "C and C++ and c, no Cat",
            "<mark>C</mark> and <mark>C</mark>++ and <mark>c</mark>, no Cat",
        ),
        ("+rain -snow", "rain and snow", "<mark>rain</mark> and snow"),
    ],
)
def test_matched_words_are_marked(
    connection: Connection, query: str, text: str, expected: str
) -> None:
    assert mark(connection, text, query) == expected


def test_markup_in_the_text_cannot_pass_for_ours(connection: Connection) -> None:
    text = "<script>alert('rain & wind')</script> <mark>rain</mark>"
    assert mark(connection, text, "rain") == (
        "&lt;script&gt;alert('<mark>rain</mark> &amp; wind')&lt;/script&gt; "
        "&lt;mark&gt;<mark>rain</mark>&lt;/mark&gt;"
    )


def test_overlapping_matches_give_one_pair_of_tags(connection: Connection) -> None:
    marked_text = mark(connection, "the rain gauge", '"rain gauge" gauge "the rain"')
    assert marked_text == "<mark>the rain gauge</mark>"


def test_a_variant_is_marked_as_the_word_it_stands_for(connection: Connection) -> None:
    found = mark(connection, "set the gauge", "guage", variants={"guage": ["gauge"]})
    assert found == "set the <mark>gauge</mark>"


def test_upper_and_lower_case_count_when_asked_for(connection: Connection) -> None:
    assert mark(connection, "Rain rain", "Rain", case=True) == "<mark>Rain</mark> rain"


def test_excerpts_lie_round_different_words(connection: Connection) -> None:
    filler = "nothing of interest here " * 20
    text = f"{filler}the vane {filler}the gauge {filler}the vane again {filler}the mast"
    found = spans(connection, text, parse_query("vane gauge mast"))
    shown = excerpts(text, found)
    assert len(shown) == 3
    assert [re.findall("<mark>(.*?)</mark>", piece) for piece in shown] == [
        ["vane"],
        ["gauge"],
        ["mast"],
    ]
    assert all(piece.startswith("...") and len(piece) < 200 for piece in shown)
    assert shown[0].endswith("...")
    assert not shown[2].endswith("...")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("retry", "All RETRIES are logged."),
        ('"are logged"', "are logged"),
        ("log*", "logged"),
        ("暖房", "暖房の設定"),
        ("+sit retries", "RETRIES"),
    ],
)
def test_of_a_long_text_only_places_are_looked_at_and_matches_are_found(
    connection: Connection, query: str, shown: str
) -> None:
    filler = "lorem ipsum dolor sit " * 20_000
    text = f"{filler}All RETRIES are logged. 暖房の設定。\n{filler}"
    found = spans(connection, text, parse_query(query))
    assert any(shown in one for one in excerpts(text, found, mark=False))
    assert all(text[span.start : span.end].strip() for span in found)
    # A part of what stands there: not every "sit" of 40,000.
    assert len(found) < 5_000


def test_one_excerpt_holds_words_that_stand_together(connection: Connection) -> None:
    text = "Rate limiting protects APIs from abuse by throttling."
    found = spans(connection, text, parse_query("rate limiting API"))
    assert excerpts(text, found, mark=False) == [text]


WORDS = st.sampled_from(
    [
        "rain",
        "Rain",
        "running",
        "<b>",
        "&",
        "検索",
        "全文検索",
        "café",
        "😀",
        "a-b",
        "C++",
        "\n",
        '"',
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=30), st.lists(WORDS, max_size=5), st.sampled_from([" ", ""]))
def test_tags_come_in_pairs_and_the_text_is_kept(
    text: list[str], query: list[str], joint: str
) -> None:
    whole = joint.join(text)
    with DATABASE.read() as connection:
        found = spans(connection, whole, parse_query(" ".join(query)))
    shown = marked(whole, found)
    assert re.fullmatch(r"(?:[^<]*<mark>[^<]+</mark>)*[^<]*", shown)
    assert unescape(re.sub("</?mark>", "", shown)) == whole
    for piece in excerpts(whole, found, width=20):
        assert re.fullmatch(r"(?:[^<]*<mark>[^<]+</mark>)*[^<]*", piece)
