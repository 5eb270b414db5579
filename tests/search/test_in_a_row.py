"""Passages with some words in a row, in a large file, are those that the index finds."""

import unicodedata
from typing import Any

import pytest
from support import Filler

from kb.search.files import Snapshot, matching
from kb.search.keywords import holding_phrase
from kb.search.query import quote
from kb.store.connection import Connection
from kb.store.contents import WHOLE_FILE, paths_of_chunks

PAGES = {
    "row.md": "# Wind\n\nThe cup of the old anemometer turns slowly in a gust.\n",
    "apart.md": "# Wind\n\nThe cup turns. The old anemometer of brass is slow in a gust.\n",
    "other.md": "# Wind\n\nAn anemometer that is old turns; the cup of tin does not.\n",
    "title.md": "# The cup of the old anemometers turned slowly\n\nNothing.\n",
    "heading.md": "# Cups\n\n## The cup of the old anemometer: turning slowly\n\nNothing.\n",
    "border.md": "# The cup of these\n\nThe old anemometer turns slowly\n",
    "accents.md": "# Vent\n\nLa girouette du vieux ch\u00e2teau tourne l\u00e0-bas, \ufb01n.\n",
    "twice.md": "# Twice\n\nTurn by turn, turning by turns, the cup turns by turn.\n",
}
TURNS = {"row.md", "title.md", "heading.md"}
TEXTS = {
    "the cup of the old anemometer turns slowly": TURNS,
    "The Cups -- of the old anemometer, turned!": TURNS,
    "cup of the old anemometer turns slowly in a gust": {"row.md"},
    "girouette du vieux chateau tourne la bas": {"accents.md"},
    "vieux ch\u00e2teau tourne l\u00e0 bas \ufb01n": set(),  # its usual form stands elsewhere
    "turn by turn turning by turns": {"twice.md"},
    "turning by turns the cup turns by turn": {"twice.md"},
    "by the cup of the old anemometer": set(),
    "anemometer old the of cup": set(),
    "cup of the": TURNS,
    "nothing of this stands there at all": set(),
}


@pytest.mark.parametrize(("text", "found"), TEXTS.items())
@pytest.mark.parametrize("most_compared", [300, 1, 0])
def test_a_large_file_has_the_passages_that_the_index_finds(
    fill: Filler,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    found: set[str],
    most_compared: int,
) -> None:
    kb = fill(PAGES, embed=False)
    monkeypatch.setattr("kb.search.keywords.MAX_COMPARED", most_compared)
    with kb.database.read() as connection:
        by_index = holding_phrase(Snapshot(connection), text, [WHOLE_FILE])
        plain = quote(unicodedata.normalize("NFKC", text))
        assert by_index == matching(connection, plain, [WHOLE_FILE])
        assert {*paths_of_chunks(connection, [*by_index]).values()} == found
        monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 1)
        assert holding_phrase(Snapshot(connection), text, [WHOLE_FILE]) == by_index


def test_the_phrase_is_only_looked_for_where_its_rarest_words_are_near_too_often(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    text = "the cup of the old anemometer turns slowly"
    monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 1)
    asked: list[str] = []

    def remember(connection: Connection, match: str, ranges: Any, limit: int = -1) -> set[int]:
        if limit > 0:
            return matching(connection, match, ranges, limit)
        asked.append(match)
        return set()

    monkeypatch.setattr("kb.search.keywords.matching", remember)
    with kb.database.read() as connection:
        assert holding_phrase(Snapshot(connection), text, [WHOLE_FILE])
        assert not asked
        monkeypatch.setattr("kb.search.keywords.MAX_COMPARED", 1)
        assert not holding_phrase(Snapshot(connection), text, [WHOLE_FILE])
        assert asked == [quote(text)]


def test_only_what_lies_in_the_ranges_is_found(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 1)
    text = "the cup of the old anemometer turns slowly"
    with kb.database.read() as connection:
        every = sorted(holding_phrase(Snapshot(connection), text, [WHOLE_FILE]))
        places = [(every[0], every[0]), (every[2], every[2])]
        assert holding_phrase(Snapshot(connection), text, places) == {every[0], every[2]}
