"""Operators of words that very many passages hold: what is compared late is found all the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support import Filler, call, hits_of

from kb.search.files import Snapshot
from kb.search.filters import Filters, chunk_filters, match_prefixes
from kb.search.query import parse_query
from kb.search.run import NOT_ALL_COMPARED
from kb.store.connection import Connection
from kb.store.contents import WHOLE_FILE, paths_of_chunks
from kb.tools.session import Session

PAGES = {
    f"{number:02}.md": f"# Page {number}\n\n"
    + "The wind of the sea turns the vane. " * (number % 3 > 0)
    + "The vanes of a mast turned and the wind is over. " * (number % 4 > 0)
    + "A ｆｕｌｌ moon, tides; tidal HTTPException 1.0. " * (number % 5 == 0)
    + "風向標が回る。" * (number % 2)
    for number in range(40)
}
QUERIES = [
    '"of the"',
    '"of the" "turns the"',
    '"the vane" -"of a"',
    '+the -"of the sea"',
    "+turn*",
    "+t* +va*",
    "+exc* -mast",
    '"full moon"',
    "wind -mast",
    'mast "the wind"',
    'wind -"the wind is"',
    '+wind +of -"full moon" -tida*',
    '"風向標"',
    '+標 -"の"',
    "+1.0",
    '"vanes"',
]


def limit_to(monkeypatch: pytest.MonkeyPatch, compared: int, listed: int) -> None:
    monkeypatch.setattr("kb.search.filters.MAX_COMPARED", compared)
    monkeypatch.setattr("kb.search.filters.MAX_PROPOSED", listed)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("limits", [(5, 1000), (5, 5), (0, 0)])
def test_what_is_compared_late_is_what_is_compared_before(
    fill: Filler, monkeypatch: pytest.MonkeyPatch, query: str, limits: tuple[int, int]
) -> None:
    kb = fill(PAGES, embed=False)

    def found() -> dict[str, float]:
        with kb.database.read() as connection:
            hits = hits_of(connection, parse_query(query), limit=100)
            paths = paths_of_chunks(connection, [hit.chunk_id for hit in hits])
            return {paths[hit.chunk_id]: hit.score for hit in hits}

    at_first = found()
    assert at_first
    limit_to(monkeypatch, *limits)
    assert found() == at_first


def test_phrases_of_common_words_read_the_texts_of_a_few_passages(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill({f"{n}.md": f"# {n}\n\nThe sea of the north.\n" for n in range(700)}, embed=False)
    limit_to(monkeypatch, 100, 500)
    rows: Counter[str] = Counter()
    read = Connection.tuples

    def count(self: Connection, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        found = read(self, name, **parameters)
        rows[name] += len(found)
        return found

    monkeypatch.setattr(Connection, "tuples", count)
    assert len(search(kb, '"of the" "the sea" -"south of"')["results"]) == 10
    assert rows["chunk_bodies"] <= 150  # as many as are compared at once
    assert rows["matching_chunk_ids"] <= 2 * 501


def test_where_not_all_were_compared_the_reader_is_told(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill({f"{n}.md": f"# {n}\n\nThe vanes turn, {n}.\n" for n in range(50)}, embed=False)
    assert NOT_ALL_COMPARED not in search(kb, '"the vane"')["notice"]
    limit_to(monkeypatch, 5, 100)
    monkeypatch.setattr("kb.search.keywords.MAX_LOOKED_AT", 20)
    answer = search(kb, '"the vane" +turn')
    assert (answer["results"], NOT_ALL_COMPARED in answer["notice"]) == ([], True)


def test_a_prefix_that_most_passages_hold_ranks_by_some_of_its_words(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"t{n:03}x" for n in range(200)]
    kb = fill({f"{n}.md": f"# {n}\n\nThe {words[n]} turns.\n" for n in range(200)}, embed=False)
    query = parse_query("+t* +s*")
    with kb.database.read() as connection:
        every = match_prefixes(Snapshot(connection), query)["t"]
        monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 20)
        monkeypatch.setattr(Snapshot, "is_common_prefix", lambda _, prefix: prefix == "t")
        some = match_prefixes(Snapshot(connection), query)["t"]
    assert (every.count(" OR "), some.count(" OR ")) == (201, 19)


def test_the_rarest_required_word_finds_and_the_others_are_compared(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    limit_to(monkeypatch, 10, 10)
    with kb.database.read() as connection:
        few = chunk_filters(connection, parse_query("+moon +tides -mast"), [WHOLE_FILE])
        many = chunk_filters(connection, parse_query("+the +of -moon"), [WHOLE_FILE])
    assert few.only
    assert few == Filters(few.only)
    assert many.without
    assert many == Filters(None, many.without, (parse_query("+the +of").must, ()))


def search(kb: Session, query: str) -> dict[str, Any]:
    return {"notice": ""} | call(kb, "documents_search", query=query)
