"""Operators: exactly the documents that a plain scan of the text finds."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings, strategies as st
from support import HashEmbedder

from kb.formats.chunk import chunk
from kb.formats.parse import parse
from kb.ingest.embed import embed_pending
from kb.models.tokens import load_tokenizer
from kb.search.occurrences import chunks_holding, documents_holding
from kb.search.query import Operand, parse_query
from kb.store.collections import insert_collection
from kb.store.connection import Connection
from kb.store.contents import chunks_of_documents, collection_range, passages_of_documents
from kb.store.database import Database
from kb.store.documents import NewDocument, store_document
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session

Filler = Callable[..., Session]


def found(kb: Session, query: str, **arguments: object) -> list[str]:
    result = call_tool(kb, "documents_search", {"query": query, "limit": 100, **arguments})
    assert not result.is_error, result.content
    return sorted({row["documentId"] for row in result.content["results"]})


DOCUMENTS = {
    "version.md": "# Versions\n\nSince 1.0.21 this and/or that; foo-bar baz.",
    "other.md": "# Others\n\nSince 1.0.2 and 21 that or this and foo. A bar, a baz.",
    "relate.md": "# Relations\n\nA relational database. She runs fast.",
    "relate2.md": "# Kin\n\nOur relations are running out.",
    "letters.md": "# Languages\n\nC and Go, AI too. R2-D2 😀 said so.",
    "cjk.md": "# 検索\n\n日本語の全文検索テスト。FastAPIの使い方。ガス管",
    "cafe.md": "# Café\n\nUn café noir, ｆｕｌｌ width ﬁne.",
}


@pytest.fixture(scope="module")
def several() -> Iterator[Session]:
    """A few documents, embedded, in memory."""
    embedder = HashEmbedder()
    with open_session(Database(":memory:"), make_embedder=lambda _: embedder) as knowledge:
        with knowledge.database.write() as connection:
            collection_id = insert_collection(connection, "several", "index")
            for path, text in DOCUMENTS.items():
                store(connection, collection_id, path, text)
        embed_pending(knowledge.model)
        yield knowledge


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"1.0.21"', ["version.md"]),
        ('"and/or"', ["version.md"]),
        ('"foo-bar baz"', ["version.md"]),
        ("+foo-bar", ["version.md"]),
        ('"relational database"', ["relate.md"]),
        ('+"relation database"', []),
        ('"running out"', ["relate2.md"]),
        ('+"runs out"', []),
        ('+"run"', []),
        ("+run", ["relate.md", "relate2.md"]),
        ("+relatio*", ["relate.md", "relate2.md"]),
        ("+relationa*", ["relate.md"]),
        ("+running*", ["relate2.md"]),
        ('"C"', ["letters.md"]),
        ("+C", ["letters.md"]),
        ("+Go +AI", ["letters.md"]),
        ('"c and go"', ["letters.md"]),
        ('"R2-D2"', ["letters.md"]),
        ("+😀", ["letters.md"]),
        ('"D2 😀 said"', ["letters.md"]),
        ('"D2 said"', ["letters.md"]),
        ('"全文検索"', ["cjk.md"]),
        ('+"検索全文"', []),
        ("+検索 +索", ["cjk.md"]),
        ('"FastAPIの使い方"', ["cjk.md"]),
        ('"full width fine"', ["cafe.md"]),
        (f'"{unicodedata.normalize("NFD", "Un café")}"', ["cafe.md"]),
        (f'"{unicodedata.normalize("NFD", "ガス")}"', ["cjk.md"]),
        ("+ｇｏ", ["letters.md"]),
        ("+that -foo", []),
        ('+since -"foo-bar"', ["other.md"]),
        ("+since -version*", ["other.md"]),
        ('"since 1.0.2"', ["other.md"]),
        ("-since", []),
        ('"languages"', ["letters.md"]),
    ],
)
@pytest.mark.parametrize("hybrid", [True, False])
def test_operators_are_enforced(
    several: Session, query: str, expected: list[str], hybrid: bool
) -> None:
    assert found(several, query, hybridSearch=hybrid) == expected


def test_operators_act_before_the_best_are_taken(fill: Filler) -> None:
    crowd = {f"{n:03}.md": "rain rain rain gauge" for n in range(150)}
    kb = fill({**crowd, "last.md": "rain and " + "something else " * 40 + "harbour gauges rain"})
    assert found(kb, 'rain "harbour gauges"', limit=1) == ["last.md"]
    assert found(kb, "rain +harb*", limit=1) == ["last.md"]
    assert found(kb, "rain -gauge", limit=1) == []
    assert found(kb, 'rain -"rain rain"', limit=1) == ["last.md"]


@pytest.mark.parametrize("written", ["w{}", "**W{}**,", "é{}", "ｗ{}", "(w{})", "x{}y😀", "风{}。"])
def test_a_phrase_is_found_across_the_border_of_two_chunks(kb: Session, written: str) -> None:
    words = [written.format(number) for number in range(2000)]
    text = " ".join(words)
    with kb.database.write() as connection:
        collection_id = insert_collection(connection, "long", "index")
        document_id = store(connection, collection_id, "long.md", text)
        chunk_ids = sorted(chunks_of_documents(connection, [document_id]))
        starts = [row[4] for row in passages_of_documents(connection, [document_id])]
        assert len(starts) > 3
        ranges = [collection_range(collection_id)]
        for chunk_id, start in zip(chunk_ids[1:], starts[1:], strict=True):
            number = len(text[:start].split())
            phrase = " ".join(words[number - 2 : number + 2])
            holding = chunks_holding(connection, Operand(phrase, is_phrase=True), ranges)
            assert holding == {chunk_id - 1, chunk_id}


# ------------------------------------------------------------------ against a plain scan

VOCABULARY = [
    *("rain", "Rain", "RAINS", "raining", "relational", "relations", "C", "Go", "a", "1.0.21"),
    *("and/or", "foo-bar", "foo", "bar", "café", "cafe\u0301", "ｆｕｌｌ", "full", "naïve", "x²"),
    *("😀", "全文検索", "検索", "日本語", "ｶﾞｽ", "ガス", "Straße", "ﬁne", "don't", "HTTPException"),
    *("ที่ทำงาน", "ทำงาน", "한국어", "\n\n", "\n# Title\n", "...", "**", "the", "of"),
]
TEXT = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)
PHRASE = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=4).map(" ".join)


def plain_words(text: str) -> list[str]:
    """A scan of its own: letters and digits, folded; unspaced script by characters."""
    found: list[str] = []
    word = ""
    for character in unicodedata.normalize("NFKC", text) + " ":
        decomposed = unicodedata.normalize("NFKD", character)
        unspaced = "\u0e00" <= character <= "\u0e7f" or "\u3041" <= character <= "\ud7ff"
        if unspaced or not character.isalnum():
            if word:
                found.append(word)
            word = ""
        if unspaced:
            found.append(character)
        elif character.isalnum():
            word += decomposed[0].lower()
    return found


def plain_scan(text: str, phrase: str) -> bool:
    words, wanted = plain_words(text), plain_words(phrase)
    size = len(wanted)
    return any(words[i : i + size] == wanted for i in range(len(words) - size + 1))


def store(connection: Connection, collection_id: int, path: str, text: str) -> int:
    parsed = parse(text, path)
    content_hash = hashlib.sha256(text.encode()).digest()
    return store_document(
        connection,
        collection_id,
        NewDocument(path, text, content_hash, parsed, chunk(text, parsed, load_tokenizer())),
    )


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6), PHRASE)
def test_a_phrase_finds_what_a_plain_scan_finds(texts: list[str], phrase: str) -> None:
    operand = Operand(phrase, is_phrase=True)
    if not plain_words(phrase):
        return
    with Database(":memory:") as database, database.write() as connection:
        collection_id = insert_collection(connection, "scan", "index")
        ids = {
            store(connection, collection_id, f"{number}.md", text): text
            for number, text in enumerate(texts)
        }
        ranges = [collection_range(collection_id)]
        holding = documents_holding(connection, operand, ranges)
        if "😀" in phrase:  # counts as a word only where it is asked for
            assert all("😀" in ids[document_id] for document_id in holding)
        else:
            names = {f"{number}.md": number for number in range(len(texts))}
            assert holding == {
                document_id
                for document_id, text in ids.items()
                if plain_scan(text, phrase)
                or (not parse(text, "x.md").sections and phrase in names)
            }


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6), st.sampled_from(VOCABULARY), st.integers(1, 6))
def test_a_prefix_finds_what_a_plain_scan_finds(texts: list[str], word: str, size: int) -> None:
    wanted = plain_words(word)
    if len(wanted) != 1 or not wanted[0].isascii() or word == "HTTPException":
        return
    prefix = wanted[0][:size]
    with Database(":memory:") as database, database.write() as connection:
        collection_id = insert_collection(connection, "scan", "index")
        ids = {
            store(connection, collection_id, f"{number}.txt", f"# t\n{text}"): text
            for number, text in enumerate(texts)
        }
        operand = Operand(prefix, is_prefix=True)
        holding = documents_holding(connection, operand, [collection_range(collection_id)])
        expected = {
            document_id
            for document_id, text in ids.items()
            if any(one.startswith(prefix) for one in plain_words(text))
        }
        if prefix in ("t", "tx", "txt", "e", "ex", "h"):  # title, and parts of HTTPException
            assert holding >= expected
        else:
            assert holding == expected


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_text_parses_into_operands_that_can_be_looked_up(text: str) -> None:
    with DATABASE.read() as connection:
        for operand in (*(query := parse_query(text)).must, *query.terms, *query.must_not):
            chunks_holding(connection, operand, [(0, 1 << 60)])


DATABASE = Database(":memory:")
