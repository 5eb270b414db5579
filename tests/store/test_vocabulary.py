"""The vocabulary has every word of what is stored, whatever its writer remembers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.errors import FileError
from kb.store.database import Database
from kb.store.vocabulary import add_words, forget_words


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
        with Database(database.path) as other, other.write() as connection:
            forget_words(connection, [])
        with database.write() as connection:
            add_words(connection, ["vane"])
        assert words(database) == ["vane"]
