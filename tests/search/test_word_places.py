"""Where some words stand in a text, by an expression and word by word."""

from itertools import product

import pytest

from kb.search import words
from kb.search.query import Operand
from kb.search.words import pattern, places
from kb.store.connection import Connection
from kb.store.database import Database

PIECES = ["of", "Of", "off", " ", "-", "_", "\n", "\u00e9", "\x00"]
PHRASES = ["of", "of of", "of, off", "Of off"]


@pytest.mark.parametrize("case", [False, True])
@pytest.mark.parametrize("phrase", PHRASES)
def test_an_expression_finds_the_places_that_words_find(
    monkeypatch: pytest.MonkeyPatch, phrase: str, case: bool
) -> None:
    texts = {"".join(pieces) for size in range(5) for pieces in product(PIECES, repeat=size)}

    def found(connection: Connection) -> dict[str, list[tuple[int, int]]]:
        wanted = pattern(connection, Operand(phrase, is_phrase=True), case=case)
        return {text: places(connection, text, wanted) for text in texts}

    with Database(":memory:") as database, database.read() as connection:
        by_expression = found(connection)
        monkeypatch.setattr(words, "_ascii_scan", lambda _: None)
        assert by_expression == found(connection)
    assert any(by_expression.values())
