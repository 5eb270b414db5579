"""Numbers with their nouns, and a few of many things."""

import pytest

from kb.text.counted import counted, most_first, sized, some_of


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


@pytest.mark.parametrize(
    ("number", "shown"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (5, "0, 1, 2 and 2 more")]
)
def test_some_of_many_are_named(number: int, shown: str) -> None:
    assert some_of(list(map(str, range(number))), 3) == shown


def test_equally_common_names_come_in_the_order_of_the_alphabet() -> None:
    assert most_first({"b": 1, "c": 2, "a": 1}) == [("c", 2), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (12_482, "12.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_234_567_890, "1.2 GB"),
    ],
)
def test_sizes_are_told_in_the_unit_that_fits(size: int, shown: str) -> None:
    assert sized(size) == shown
