"""The vocabulary has every word of what is stored, whatever its writer remembers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import another_process

from kb.errors import FileError
from kb.search.files import existing_words
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.vocabulary import add_words, beginning_of_words, forget_words, stem_of


def words(database: Database) -> list[str]:
    with database.read() as connection:
        return [word for (word,) in connection.tuples("all_words")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "kb.db") as opened:
        yield opened


def test_words_of_a_write_that_failed_are_added_by_the_next(database: Database) -> None:
    def fail() -> None:
        with database.write() as connection:
            add_words(connection, ["vane"])
            raise FileError("the rest cannot be stored")

    with database.batch():
        with pytest.raises(FileError):
            fail()
        with database.write() as connection:
            add_words(connection, ["vane mast"])
    assert words(database) == ["mast", "vane"]


def test_words_that_were_taken_out_are_added_again(database: Database) -> None:
    with database.batch():
        with database.write() as connection:
            add_words(connection, ["vane mast"])
        with database.write() as connection:
            forget_words(connection, [])
        assert words(database) == []
        with database.write() as connection:
            add_words(connection, ["vane"])
        assert words(database) == ["vane"]


def test_words_that_another_process_took_out_are_added_again(database: Database) -> None:
    with database.batch():
        with database.write() as connection:
            add_words(connection, ["vane"])
        with another_process(), Database(database.path) as other, other.write() as connection:
            forget_words(connection, [])
        with database.write() as connection:
            add_words(connection, ["vane"])
        assert words(database) == ["vane"]


# Endings that porter takes off or changes, one behind the other.
ENDINGS = (
    "ational tional enci anci izer bli alli entli eli ousli ization ation ator alism iveness "
    "fulness ousness aliti iviti biliti logi icate ative alize iciti ical ful ness al ance ence er "
    "ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize eed ed ing sses ies "
    "ss s y e at bl iz ll"
).split()


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Connection]:
    with Database(":memory:") as database, database.write() as connection:
        yield connection


@given(
    root=st.text("aeiouybcdlrst", max_size=5),
    endings=st.lists(st.sampled_from(ENDINGS), max_size=3),
)
def test_a_word_begins_as_its_stem_says(
    in_memory: Connection, root: str, endings: list[str]
) -> None:
    word = root + "".join(endings)
    if word:
        assert word.startswith(beginning_of_words(stem_of(in_memory, word)))


@given(word=st.text("aeéisxдж漢0", min_size=1, max_size=70))
def test_so_does_any_other(in_memory: Connection, word: str) -> None:
    for _, _, folded in in_memory.tokenize(word):
        assert folded.startswith(beginning_of_words(stem_of(in_memory, folded)))


@pytest.mark.parametrize(
    ("stored", "asked", "expected"),
    [
        ("happy", "happiness", True),
        ("filing", "file", True),
        ("relational", "relate", True),
        ("c", "c", True),
        ("cat", "c", False),
        ("relax", "relate", False),
        ("filing", "fill", False),
    ],
)
def test_a_stem_is_found_by_its_words(
    database: Database, stored: str, asked: str, expected: bool
) -> None:
    with database.write() as connection:
        add_words(connection, [stored])
        assert (existing_words(connection, {asked}) == {asked}) is expected
