"""Words that very many passages hold do not rank where another does."""

import pytest
from support import Filler

from kb.search.coverage import telling

PAGES = {f"{n}.md": f"# Page {n}\n\nEvery page tells of wind.\n" for n in range(20)}
PAGES["rare.md"] = "# Anemometer\n\nThis one tells of wind too.\n"


def test_a_word_of_most_passages_ranks_only_where_no_other_does(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    asked = ['"wind"', '"anemometer"', '"tells"']
    with kb.database.read() as connection:
        assert telling(connection, asked) == asked  # a small file costs nothing
        monkeypatch.setattr("kb.search.coverage.MOST_RANKED", 5)
        assert telling(connection, asked) == ['"anemometer"']
        assert telling(connection, ['"wind"', '"tells"']) == ['"wind"', '"tells"']
        assert telling(connection, ['"wind"', '"unheard"']) == ['"wind"', '"unheard"']
        assert telling(connection, []) == []
