"""Numbers with their nouns."""

import pytest

from kb.text.counted import counted


@pytest.mark.parametrize(
    ("number", "words", "expected"),
    [
        (0, ("passage",), "0 passages"),
        (1, ("passage",), "1 passage"),
        (2, ("passage",), "2 passages"),
        (1234, ("line",), "1,234 lines"),
        (1, ("query", "queries"), "1 query"),
        (3, ("passage waits", "passages wait"), "3 passages wait"),
    ],
)
def test_a_number_and_its_noun_agree(number: int, words: tuple[str, ...], expected: str) -> None:
    assert counted(number, *words) == expected
