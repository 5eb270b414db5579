"""The words of a named index's document are counted in parts: the same number, in little memory."""

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from kb.search.bm25 import IndexOptions, count_words
from kb.search.words import split
from kb.store.connection import Connection
from kb.store.database import Database
from kb.text.terms import parts

SIGNS = "ab1 \n.,_-'/风向标は테스트ンがｶﾞé\u0301\u1100\u1161\u3099กำ😀ﬁ①"
TEXTS = st.text(st.sampled_from(SIGNS), max_size=60)


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with Database(":memory:") as database, database.read() as opened:
        yield opened


@given(text=TEXTS, least=st.integers(1, 20))
def test_parts_have_the_words_of_the_whole(connection: Connection, text: str, least: int) -> None:
    found = list(parts(text, least))
    assert "".join(found) == text
    words = [w for one in found for w in split(connection, one, pictographs=True).words]
    assert words == split(connection, text, pictographs=True).words


@pytest.mark.slow
def test_chinese_without_an_end_takes_little_memory(connection: Connection) -> None:
    text = "风向标的一是不了人我在有他这" * 50_000
    tracemalloc.start()
    try:
        assert count_words(connection, text, IndexOptions()) == len(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text)  # a word takes 130 bytes
