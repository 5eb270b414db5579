"""Words that very many passages hold do not rank where another does."""

import pytest
from support import Filler

from kb.search.coverage import coverage
from kb.search.hybrid import Hit, search
from kb.search.lookup import Unit, file_sizes, look_up, telling
from kb.search.query import parse_query
from kb.search.ranking import RELEVANT
from kb.store.chunks import documents_of_chunks, paths_of_chunks
from kb.tools.session import Session

PAGES = {f"{n}.md": f"# Page {n}\n\nEvery page tells of wind.\n" for n in range(20)}
PAGES["rare.md"] = "# Anemometer\n\nThis one tells of wind too.\n"


def test_a_word_of_most_passages_ranks_only_where_no_other_does(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    asked = ['"wind"', '"anemometer"', '"tells"']
    with kb.database.read() as connection:
        assert telling(connection, asked) == (asked, {})  # a small file costs nothing
        monkeypatch.setattr("kb.search.lookup.MOST_RANKED", 5)
        kept, counted = telling(connection, asked)
        assert kept == ['"anemometer"']
        assert counted == {'"wind"': 5, '"anemometer"': 1, '"tells"': 5}  # of 21, as far as counted
        assert telling(connection, ['"wind"', '"tells"'])[0] == ['"wind"', '"tells"']
        assert telling(connection, ['"wind"', '"unheard"'])[0] == ['"wind"', '"unheard"']
        assert telling(connection, []) == ([], {})


def test_what_is_counted_once_is_not_looked_up_again(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    units = [Unit('"wind"'), Unit('"anemometer"')]
    monkeypatch.setattr("kb.search.lookup.MOST_HOLDING", 10)
    with kb.database.read() as connection:
        chunks = [
            row[0]
            for row in connection.tuples(
                "matching_chunk_ids", match='"anemometer"', first=0, last=2**62
            )
        ]
        document_of = documents_of_chunks(connection, chunks)
        again = look_up(connection, units, ['"wind"'], document_of)
        once = look_up(connection, units, ['"wind"'], document_of, {'"wind"': 21})
        assert coverage(once).held == coverage(again).held == {chunks[0]: 1.0}
        assert coverage(once).greatest_score == coverage(again).greatest_score
        asked = look_up(connection, units[:1], ['"wind"'], document_of, {'"wind"': 21})
        assert coverage(asked).held == {chunks[0]: 1.0}  # where there is no other word it counts


def test_passages_are_counted_anew_when_the_file_has_changed(fill: Filler) -> None:
    kb = fill(PAGES, embed=False)
    with kb.database.read() as connection:
        assert file_sizes(connection) == (21, 21)
    with kb.database.write() as connection:
        (last, *_) = [row[0] for row in connection.tuples("all_document_ids")]
        connection.run("delete_document", document_id=last)
        assert file_sizes(connection) == (20, 20)
    with kb.database.read() as connection:
        assert file_sizes(connection) == (20, 20)


def best(kb: Session, text: str) -> tuple[str, float]:
    """The first passage's document for a query, and its score."""
    with kb.database.read() as connection:
        first: Hit = search(connection, parse_query(text), None)[0]
        return paths_of_chunks(connection, [first.chunk_id])[first.chunk_id], first.score


def test_words_of_nearly_every_passage_make_none_relevant(fill: Filler) -> None:
    pages = {
        f"{n}.md": f"# Page {n}\n\nThe vane of mast {n} turns to the wind.\n" for n in range(150)
    }
    pages["rare.md"] = "# Notes\n\nThe anemometer is of brass.\n"
    kb = fill(pages, embed=False)
    for text in ("the", "of the", "to", "wind", "turns", "vane wind", "+the"):
        assert best(kb, text)[1] < RELEVANT, text
    found, score = best(kb, "the anemometer")
    assert (found, score >= RELEVANT) == ("rare.md", True)


def test_a_title_of_such_words_is_still_found_by_it(fill: Filler) -> None:
    pages = {f"{n}.md": f"# Page {n}\n\nWhat the wind is about, {n}.\n" for n in range(150)}
    pages |= {"w.md": "# Wind\n\nIt blows.\n", "a.md": "# About\n\nWho wrote this.\n"}
    kb = fill(pages, embed=False)
    for text, path in (("wind", "w.md"), ("about", "a.md")):
        found, score = best(kb, text)
        assert (found, score >= RELEVANT) == (path, True), text


def test_a_word_that_all_of_a_few_notes_hold_is_not_common(fill: Filler) -> None:
    kb = fill({f"{n}.md": f"# Note {n}\n\nDeploy {n} with care.\n" for n in range(5)}, embed=False)
    assert best(kb, "deploy")[1] >= RELEVANT
    assert best(kb, "with")[1] < RELEVANT
