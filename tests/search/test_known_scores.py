"""A search in a small part of a large file has the scores that the whole file's index gives."""

import json

import pytest
from support import Filler

from kb.search.files import Snapshot, matching
from kb.search.filters import Filters
from kb.search.keywords import keyword_hits, split_by_rarity, weighed_terms, word_lists
from kb.search.query import parse_query
from kb.search.ranking import COLUMN_WEIGHTS
from kb.store.contents import WHOLE_FILE, ChunkRange

PAGES = {
    f"{n}.md": f"# {'Wind' if n % 7 == 0 else 'Page'} {n}\n\n"
    + ("The anemometer. " if n % 5 == 0 else "")
    + ("A gust, a gust. " if n % 3 == 0 else "")
    + f"{'Wind and rain. ' * (n % 4)}\n"
    for n in range(40)
}
WORDS = ['"anemometer"', '"gust"', '"wind"', '"rain"']


def part_of(kb: object) -> ChunkRange:
    """The first half of the passages."""
    with kb.database.read() as connection:  # type: ignore[attr-defined]
        ids = [row[0] for row in connection.apsw.execute("SELECT chunk_id FROM chunks ORDER BY 1")]
    return ids[0], ids[len(ids) // 2]


def test_scores_by_known_words_are_those_of_bm25(fill: Filler) -> None:
    kb = fill(PAGES, embed=False)
    place = part_of(kb)
    with kb.database.read() as connection:
        known = weighed_terms(Snapshot(connection), WORDS, [place])
        for word in WORDS:
            assert known[word].passages == len(matching(connection, word, [place]))
        for match, words in (
            (" OR ".join(WORDS), WORDS),
            (f"({WORDS[2]} OR {WORDS[0]}) AND ({WORDS[1]})", [WORDS[2], WORDS[0], WORDS[1]]),
        ):
            expected = keyword_hits(Snapshot(connection), match, [place], 100)
            found = connection.tuples(
                "keyword_hits_by_known_words",
                match=match,
                idf=json.dumps([known[word].idf for word in words]),
                ranges=json.dumps([place]),
                limit=100,
                **COLUMN_WEIGHTS,
            )
            assert [one for one, _ in found] == [*expected]
            assert [-score for _, score in found] == pytest.approx([*expected.values()])
        assert (
            weighed_terms(Snapshot(connection), ['"wind"', '"wind rain"'], [place]) == {}
        )  # counted as one, not known


def test_a_small_part_of_a_large_file_is_searched_by_known_words(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    place = part_of(kb)
    query = parse_query("anemometer gust wind rain")
    operators = parse_query('"gust" -rain wind')
    with kb.database.read() as connection:
        assert not Snapshot(connection).is_small_part([place])  # the file is small
        plain = word_lists(Snapshot(connection), query, [place], 100)
    monkeypatch.setattr("kb.search.files.LARGE", 30)
    monkeypatch.setattr("kb.search.files.SMALL_SHARE", 0.9)
    asked: list[str] = []
    with kb.database.read() as connection:
        assert Snapshot(connection).is_small_part([place])
        assert not Snapshot(connection).is_small_part([WHOLE_FILE])
        assert not Snapshot(connection).is_small_part([place] * 2)  # together they are not small
        connection.apsw.exec_trace = lambda _, sql, parameters: asked.append(sql) or True
        known = word_lists(Snapshot(connection), query, [place], 100)
        assert any("bm25_of_weights" in sql for sql in asked)
        assert not any(" bm25(" in sql for sql in asked)
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr("kb.search.keywords.MAX_BY_WEIGHTS", 3)
            many = word_lists(Snapshot(connection), query, [place], 100)
        assert not any("bm25_of_weights" in sql for sql in asked)
        assert word_lists(
            Snapshot(connection), operators, [place], 100, Filters({*plain.scores})
        ).scores
        assert not any("bm25_of_weights" in sql for sql in asked)
        connection.apsw.exec_trace = None
    assert many.scores == plain.scores
    assert [*known.scores] == [*plain.scores]
    assert [*known.scores.values()] == pytest.approx([*plain.scores.values()])


def test_what_finds_passages_of_a_part_is_rare_there(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {f"{n}.md": f"# Page {n}\n\nA vane, {n}.\n" for n in range(20)}
    pages |= {f"rain{n}.md": f"# Page {n}\n\nRain, {n}.\n" for n in range(5)}
    kb = fill(pages, embed=False)
    monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 5)
    monkeypatch.setattr("kb.search.files.MAX_RANKING_SHARE", 0.9)
    monkeypatch.setattr("kb.search.keywords.MAX_FOUND_BY", 10)
    monkeypatch.setattr("kb.search.keywords.MAX_FOUND_BY_IN_PART", 3)
    words = ['"vane"', '"rain"']
    with kb.database.read() as connection:
        rain = sorted(matching(connection, '"rain"', [WHOLE_FILE]))
        place = rain[0], rain[-1]
        assert not matching(connection, '"vane"', [place])
        assert split_by_rarity(Snapshot(connection), words) == (['"rain"'], ['"vane"'])
        assert split_by_rarity(Snapshot(connection), words, [place]) == (['"vane"'], ['"rain"'])
