"""Typos find the words they were meant to be."""

import random
import re
import string
from pathlib import Path

import pytest
from rapidfuzz.distance import OSA
from support import WINDROSE, Filler, call

from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.search.typos import prefixed, variants
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.vocabulary import stem_of
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session


def words_near(kb: Session, word: str) -> list[str]:
    with kb.database.read() as connection:
        return [one.word for one in variants(connection, [word])[word]]


@pytest.fixture
def filled(fill) -> Session:
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
def test_a_typo_finds_the_word(filled: Session, typed: str, meant: str) -> None:
    assert words_near(filled, typed)[0] == meant


@pytest.mark.parametrize("typed", ["rai", "gouche", "E418", "1025", "anmtr", "雨量", ""])
def test_short_words_numbers_and_far_words_find_nothing(filled: Session, typed: str) -> None:
    assert words_near(filled, typed) == []


def test_words_of_the_same_stem_are_no_typos(fill) -> None:
    kb = fill({"a.md": "rain rains raining grains"}, embed=False)
    assert words_near(kb, "rains") == ["grains"]


def test_all_words_one_edit_away_are_found_and_no_others(
    fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.search.typos.MAX_VARIANTS", 1000)
    dice = random.Random(7)
    words = {"".join(dice.choices("abc", k=dice.randint(3, 8))) for _ in range(800)}
    kb = fill({"a.md": " ".join(sorted(words))}, embed=False)
    with kb.database.read() as connection:
        for typed in dice.sample(sorted(word for word in words if 4 <= len(word) < 8), 60):
            stem = stem_of(connection, typed)
            expected = {
                word
                for word in words
                if OSA.distance(typed, word) == 1 and stem_of(connection, word) != stem
            }
            found = {one.word for one in variants(connection, [typed])[typed]}
            assert found == expected, typed


def test_every_single_edit_of_a_long_word_is_found(filled: Session) -> None:
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
                near = [one.word for one in variants(connection, [edit])[edit]]
                assert near in ([word], []), edit
                if not same_stem(connection, edit, word):
                    assert near == [word]


def same_stem(connection: Connection, one: str, other: str) -> bool:
    stems = [connection.tokenize(text, stem=True)[0][2] for text in (one, other)]
    return stems[0] == stems[1]


def test_prefixes_give_words_and_stems(filled: Session) -> None:
    with filled.database.read() as connection:
        assert prefixed(connection, ["calibrati"]) == {"calibrati": {"calibration": "calibr"}}


def test_an_unknown_word_is_searched_as_its_likely_meaning(fill) -> None:
    kb = fill(
        {"a.md": "# Vane\n\nCalibration of the vane.", "b.md": "# Rain\n\nThe gauge tips."},
        embed=False,
    )
    result = call_tool(kb, "documents_search", {"query": "calibraton"}).content
    assert [row["documentId"] for row in result["results"]] == ["a.md"]
    said = 'No document has "calibraton": searched for "calibration" too.'
    assert said in result["notice"]
    right = call_tool(kb, "documents_search", {"query": "calibration"}).content
    assert "No document has" not in right["notice"]
    assert result["results"][0]["relevanceScore"] < right["results"][0]["relevanceScore"]
    result = call_tool(kb, "documents_search", {"query": "+calibraton"}).content
    assert result["results"] == []
    assert "did you mean" in result["notice"]


def test_a_question_in_another_language_is_not_corrected(fill) -> None:
    kb = fill(
        {"a.md": "# Upload\n\nSend a file.", "b.md": "# Calendar\n\nEach date has a line."},
        embed=False,
    )
    assert (
        "notice"
        not in call_tool(kb, "documents_search", {"query": "Wie lade ich eine Datei hoch?"}).content
    )
    # Two typos among three words are still two typos.
    result = call_tool(kb, "documents_search", {"query": "calendr dafe line"}).content
    assert result["notice"].count("searched for") == 2
    assert result["results"][0]["documentId"] == "b.md"
    # The beginnings of words are no foreign words.
    result = call_tool(kb, "documents_search", {"query": "calendr upl* dat* lin*"}).content
    assert 'searched for "calendar" too' in result["notice"]


def one_edit(word: str, choose: random.Random) -> str:
    place = choose.randrange(len(word) - 1)
    letter = choose.choice(string.ascii_lowercase)
    return choose.choice(
        [
            word[:place] + word[place + 1 :],
            word[:place] + letter + word[place:],
            word[:place] + letter + word[place + 1 :],
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
        ]
    )


def test_a_typo_in_a_query_of_several_words_still_finds_the_document(tmp_path: Path) -> None:
    choose = random.Random(7)
    found = asked = 0
    with open_session(Database(tmp_path / "kb.db"), project=tmp_path) as kb:
        sync_collection(kb.database, register(kb.database, str(WINDROSE)))
        texts = {file.relative_to(WINDROSE).as_posix(): file for file in WINDROSE.rglob("*.md")}
        for path, file in sorted(texts.items()):
            words = {word for word in words_of(file.read_bytes()) if len(word) >= 5}
            for _ in range(2):
                some = choose.sample(sorted(words), 3) if len(words) >= 3 else []
                if not some:
                    continue
                query = " ".join([one_edit(some[0], choose), *some[1:]])
                rows = call_tool(kb, "documents_search", {"query": query}).content["results"]
                asked += 1
                found += path in {row["documentId"] for row in rows}
    assert asked >= 40
    assert found >= 0.95 * asked


def words_of(data: bytes) -> list[str]:
    return re.findall(r"[a-z]+", data.decode("utf-8", "ignore").lower())


def test_a_picture_is_no_word_wherever_it_stands(fill) -> None:
    page = "# 🎉 Party\n\nCake 🎂 and 🕯, cake and wind.\n\n## 🎉 Again\n\n🎂 naïve\n"
    kb = fill({"party.md": page}, embed=False)
    with kb.database.read() as connection:
        begun = prefixed(connection, ["u1f", "na"])
        assert (begun["u1f"], {*begun["na"]}) == ({}, {"naive"})


def test_a_notice_of_a_word_leaves_that_of_reranking(fill: Filler) -> None:
    kb = fill({"a.md": b"# Vane\n\nThe vane turns another way.\n"})
    plain = call(kb, "documents_search", query="anothr")["notice"]
    told = call(kb, "documents_search", query="anothr", rerank=True)["notice"]
    assert told.startswith(plain)
    assert "The model gives no token vectors" in told
