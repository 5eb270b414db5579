"""Typos find the words they were meant to be."""

import random
import string

import pytest

from kb.database import Connection
from kb.fuzzy import expansions, prefixed, variants
from kb.knowledge_base import KnowledgeBase
from kb.query import Operand


def words_near(kb: KnowledgeBase, word: str) -> list[str]:
    with kb.database.read() as connection:
        return [one.word for one in variants(connection, word)]


@pytest.fixture
def filled(fill) -> KnowledgeBase:
    return fill(
        {"a.md": "# Calibration\n\nThe rain gauge: a bucket, café, anemometer, E417, 1024."},
        embed=False,
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("guage", "gauge"),  # swap
        ("gage", "gauge"),  # a letter missing
        ("gaauge", "gauge"),  # one too many
        ("gauce", "gauge"),  # another one
        ("rian", "rain"),
        ("calibraton", "calibration"),
        ("clibraton", "calibration"),  # two edits
        ("amenometer", "anemometer"),
        ("anenometr", "anemometer"),
        ("caféx", "cafe"),
        ("BUKET", "bucket"),
    ],
)
def test_a_typo_finds_the_word(filled: KnowledgeBase, typed: str, meant: str) -> None:
    assert words_near(filled, typed)[0] == meant


@pytest.mark.parametrize("typed", ["rai", "gouche", "E418", "1025", "anmtr", "雨量", ""])
def test_short_words_numbers_and_far_words_find_nothing(filled: KnowledgeBase, typed: str) -> None:
    assert words_near(filled, typed) == []


def test_words_of_the_same_stem_are_no_typos(fill) -> None:
    kb = fill({"a.md": "rain rains raining grains"}, embed=False)
    assert words_near(kb, "rains") == ["grains"]


def test_every_single_edit_of_a_long_word_is_found(filled: KnowledgeBase) -> None:
    word, choose = "anemometer", random.Random(4)
    with filled.database.read() as connection:
        for place in range(len(word)):
            letter = choose.choice(string.ascii_lowercase)
            edits = {
                word[:place] + word[place + 1 :],
                word[:place] + letter + word[place:],
                word[:place] + letter + word[place + 1 :],
            }
            for edit in edits - {word}:
                assert [one.word for one in variants(connection, edit)] in ([word], []), edit
                if not same_stem(connection, edit, word):
                    assert variants(connection, edit)[0].word == word


def same_stem(connection: Connection, one: str, other: str) -> bool:
    stems = [connection.tokenize(text, stem=True)[0][2] for text in (one, other)]
    return stems[0] == stems[1]


def test_expansions_are_safe_fts5_terms(filled: KnowledgeBase) -> None:
    with filled.database.read() as connection:
        assert expansions(connection, Operand("guage")) == ['"gauge"']
        assert expansions(connection, Operand("calib")) == ['"calibration"']
        assert expansions(connection, Operand("guage", is_phrase=True)) == []


def test_prefixes_give_words_and_stems(filled: KnowledgeBase) -> None:
    with filled.database.read() as connection:
        assert prefixed(connection, "calibrati") == {"calibration": "calibr"}
