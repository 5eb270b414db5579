"""A search in a small part of a large file has the scores that the whole file's index gives."""

import json

import pytest
from support import Filler

from kb.search.candidates import matching
from kb.search.keywords import keyword_hits, word_lists
from kb.search.known_scores import known_words
from kb.search.lookup import finding_and_following
from kb.search.query import parse_query
from kb.search.ranking import COLUMN_WEIGHTS
from kb.search.word_counts import is_small_part
from kb.store.ids import WHOLE_FILE, ChunkRange

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
        known = known_words(connection, WORDS, [place])
        for word in WORDS:
            assert known[word].passages == len(matching(connection, word, [place]))
        for match, words in (
            (" OR ".join(WORDS), WORDS),
            (f"({WORDS[2]} OR {WORDS[0]}) AND ({WORDS[1]})", [WORDS[2], WORDS[0], WORDS[1]]),
        ):
            expected = keyword_hits(connection, match, [place], 100)
            found = connection.tuples(
                "keyword_hits_by_known_words",
                match=match,
                idf=json.dumps([known[word].idf for word in words]),
                first=place[0],
                last=place[1],
                limit=100,
                **COLUMN_WEIGHTS,
            )
            assert [one for one, _ in found] == [one for one, _ in expected]
            assert [-score for _, score in found] == pytest.approx([two for _, two in expected])
        assert (
            known_words(connection, ['"wind"', '"wind rain"'], [place]) == {}
        )  # counted as one, not known


def test_a_small_part_of_a_large_file_is_searched_by_known_words(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    place = part_of(kb)
    query = parse_query("anemometer gust wind rain")
    operators = parse_query('"gust" -rain wind')
    with kb.database.read() as connection:
        assert not is_small_part(connection, [place])  # the file is small
        plain = word_lists(connection, query, [place], 100, None, None)
    monkeypatch.setattr("kb.search.word_counts.LARGE", 30)
    monkeypatch.setattr("kb.search.word_counts.SMALL_SHARE", 0.9)
    asked: list[str] = []
    with kb.database.read() as connection:
        assert is_small_part(connection, [place])
        assert not is_small_part(connection, [WHOLE_FILE])
        assert not is_small_part(connection, [place] * 2)  # together they are not small
        connection.apsw.exec_trace = lambda _, sql, parameters: asked.append(sql) or True
        known = word_lists(connection, query, [place], 100, None, None)
        assert any("known_bm25" in sql for sql in asked)
        assert not any(" bm25" in sql for sql in asked)
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr("kb.search.keywords.MOST_BY_KNOWN", 3)
            many = word_lists(connection, query, [place], 100, None, None)
        assert not any("known_bm25" in sql for sql in asked)
        assert word_lists(connection, operators, [place], 100, {*plain.chunks}, None).chunks
        assert not any("known_bm25" in sql for sql in asked)
        connection.apsw.exec_trace = None
    assert many.chunks == plain.chunks
    assert [*known.chunks] == [*plain.chunks]
    assert [*known.chunks.values()] == pytest.approx([*plain.chunks.values()])


def test_what_finds_passages_of_a_part_is_rare_there(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {f"{n}.md": f"# Page {n}\n\nA vane, {n}.\n" for n in range(20)}
    pages |= {f"rain{n}.md": f"# Page {n}\n\nRain, {n}.\n" for n in range(5)}
    kb = fill(pages, embed=False)
    monkeypatch.setattr("kb.search.word_counts.MOST_RANKED", 5)
    monkeypatch.setattr("kb.search.word_counts.MOST_RANKED_SHARE", 0.9)
    monkeypatch.setattr("kb.search.lookup.MOST_FOUND", 10)
    monkeypatch.setattr("kb.search.lookup.MOST_FOUND_IN_PART", 3)
    words = ['"vane"', '"rain"']
    with kb.database.read() as connection:
        rain = sorted(matching(connection, '"rain"', [WHOLE_FILE]))
        place = rain[0], rain[-1]
        assert not matching(connection, '"vane"', [place])
        assert finding_and_following(connection, words) == (['"rain"'], ['"vane"'])
        assert finding_and_following(connection, words, [place]) == (['"vane"'], ['"rain"'])
