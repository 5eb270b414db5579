"""Whether a text begins with some words, by an expression and word by word."""

from itertools import product

import pytest

from kb.search import words
from kb.search.query import Operand
from kb.search.words import pattern, starts_with
from kb.store.connection import Connection
from kb.store.database import Database

PIECES = ["of", "Of", "off", " ", "-", "_", "\n", "\u00e9", "\x00"]
PHRASES = ["of", "of of", "of, off", "Of off"]


@pytest.mark.parametrize("case", [False, True])
@pytest.mark.parametrize("phrase", PHRASES)
def test_an_expression_finds_the_beginnings_that_words_find(
    monkeypatch: pytest.MonkeyPatch, phrase: str, case: bool
) -> None:
    texts = {"".join(pieces) for size in range(5) for pieces in product(PIECES, repeat=size)}

    def beginning_so(connection: Connection) -> set[str]:
        wanted = pattern(connection, Operand(phrase, is_phrase=True), case=case)
        return {text for text in texts if starts_with(connection, text, wanted)}

    with Database(":memory:") as database, database.read() as connection:
        by_expression = beginning_so(connection)
        monkeypatch.setattr(words, "_ascii_scan", lambda _: None)
        assert by_expression == beginning_so(connection)
    assert by_expression
    assert by_expression != texts
