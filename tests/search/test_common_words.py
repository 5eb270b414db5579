"""Words that very many passages hold do not rank where another does."""

import pytest
from support import Filler

from kb.search.coverage import coverage
from kb.search.lookup import Unit, file_sizes, look_up, telling
from kb.store.chunks import documents_of_chunks

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
