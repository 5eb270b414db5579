"""In how many passages words stand, exactly and about."""

import json

import pytest
from support import Filler

from kb.search.files import Snapshot
from kb.store.documents import delete_document

SECTIONS = 4_000
OTHERS = 3  # passages that hold the word which stands before the common one in the index


@pytest.fixture
def about_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kb.search.files.PAGES_TELL", 2_000)
    monkeypatch.setattr("kb.search.files.MIN_ESTIMATED", 1_500)
    monkeypatch.setattr("kb.search.files.MAX_DF", 1_500)
    monkeypatch.setattr("kb.search.files.SAMPLE", 500)


def test_common_words_are_counted_by_the_pages_that_they_fill(
    fill: Filler, about_is_worth_it: None
) -> None:
    sections = [f"## {n}\n\nThe wind {'windc' if n < OTHERS else ''}.\n" for n in range(SECTIONS)]
    kb = fill({"long.md": "# Long\n\n" + "\n".join(sections)}, embed=False)
    asked = ['"wind"', '"Winds"', '"windc"', '"windb"', '"windd"', '"the wind"', '"wind" OR "x"']
    with kb.database.read() as connection:
        exact = Snapshot(connection).df(asked, 10_000)
        assert exact['"wind"'] == exact['"the wind"'] >= SECTIONS
        pages = dict(
            connection.tuples(
                "pages_behind_terms", terms=json.dumps({w: w for w in ("wind", "windc", "winda")})
            )
        )
        # Between the page on which the common word begins and the next are its own alone.
        assert pages["wind"] >= 2
        about = Snapshot(connection).estimated_df(asked, 10_000)
        assert about.keys() == exact.keys()
        assert about['"wind"'] == about['"Winds"'] != exact['"wind"']
        assert 0.5 < about['"wind"'] / exact['"wind"'] < 2
        for match in asked[2:]:  # rare or not there, or more than a word
            assert about[match] == exact[match], match
        assert Snapshot(connection).estimated_df(asked, 2)['"windc"'] == 2


def test_a_rare_word_is_not_taken_for_its_neighbour_in_the_index(
    fill: Filler, about_is_worth_it: None
) -> None:
    # "the" begins on the page on which "thd" and "the" lie; what lies behind is that of "the".
    sections = [f"## {n}\n\nThe wind.\n" for n in range(SECTIONS)]
    kb = fill({"long.md": "# Long\n\nThd.\n\n" + "\n".join(sections)}, embed=False)
    with kb.database.read() as connection:
        pages = dict(
            connection.tuples(
                "pages_behind_terms", terms=json.dumps({w: w for w in ("thd", "the", "thda")})
            )
        )
        assert pages["thd"] == pages["thda"] == pages["the"] >= 2
        about = Snapshot(connection).estimated_df(['"thd"', '"thda"', '"the"'], 10_000)
        assert (about['"thd"'], about['"thda"']) == (1, 0)
        assert about['"the"'] > 1_500


def test_counts_of_a_file_that_has_changed_are_new_ones(
    fill: Filler, about_is_worth_it: None
) -> None:
    sections = [f"## {n}\n\nThe wind.\n" for n in range(SECTIONS)]
    kb = fill({"long.md": "# Long\n\n" + "\n".join(sections), "a.md": "# A\n"}, embed=False)
    with kb.database.read() as connection:
        assert Snapshot(connection).estimated_df(['"wind"'], 10_000)['"wind"'] > 1_500
    with kb.database.write() as connection:
        for row in connection.tuples("all_document_ids"):
            delete_document(connection, row[0])
    with kb.database.read() as connection:
        assert Snapshot(connection).estimated_df(['"wind"'], 10_000) == {'"wind"': 0}
