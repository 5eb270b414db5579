"""Words that very many passages hold do not rank where another does."""

import pytest
from support import Filler, hits_of

from kb.search.candidates import Term, match_terms
from kb.search.evidence import corpus_statistics, coverage, document_shares
from kb.search.files import Snapshot, matching
from kb.search.filters import Filters
from kb.search.keywords import keyword_hits, split_by_rarity, word_hits
from kb.search.query import parse_query
from kb.search.ranking import RELEVANT
from kb.store.contents import WHOLE_FILE, documents_of_chunks, paths_of_chunks
from kb.tools.session import Session

PAGES = {f"{n}.md": f"# Page {n}\n\nEvery page tells of wind.\n" for n in range(20)}
SOME = {
    f"{n}.md": f"# Page {n}\n\n"
    + ("The anemometer. " if n % 5 == 0 else "")
    + ("A gust, a gust. " if n % 3 == 0 else "")
    + f"{'Wind. ' * (n % 4)}\n"
    for n in range(25)
}
PAGES["rare.md"] = "# Anemometer\n\nThis one tells of wind too.\n"


@pytest.fixture
def some_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as small as these are searched as large ones are."""
    monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 20)
    monkeypatch.setattr("kb.search.files.MAX_RANKING_SHARE", 0.9)
    monkeypatch.setattr("kb.search.keywords.MAX_FOUND_BY", 5)


def test_a_word_of_most_passages_ranks_only_where_no_other_does(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    asked = ['"wind"', '"anemometer"', '"tells"']
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        assert split_by_rarity(snapshot, asked) == (
            asked,
            [],
        )  # a small file costs nothing
        monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 5)
        assert split_by_rarity(snapshot, asked) == (['"anemometer"'], [])
        assert snapshot.df(asked, 5) == {  # of 21, as far as counted
            '"wind"': 5,
            '"anemometer"': 1,
            '"tells"': 5,
        }
        assert split_by_rarity(snapshot, ['"wind"', '"tells"'])[0] == [
            '"wind"',
            '"tells"',
        ]
        assert split_by_rarity(snapshot, ['"wind"', '"unheard"'])[0] == [
            '"wind"',
            '"unheard"',
        ]
        assert split_by_rarity(snapshot, []) == ([], [])


def test_of_very_many_passages_only_the_least_common_words_rank(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    asked = ['"wind"', '"page"', '"tells"']  # in 21, 20 and 21 passages
    monkeypatch.setattr("kb.search.files.MAX_RANKING_DF", 5)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        for most, ranking in ((62, asked), (61, ['"page"', '"tells"']), (10, ['"page"'])):
            monkeypatch.setattr("kb.search.keywords.MAX_SCORED", most)
            assert split_by_rarity(snapshot, asked) == (ranking, [])
        assert split_by_rarity(snapshot, ['"wind"'])[0] == ['"wind"']
        first = [row[0] for row in connection.apsw.execute("SELECT chunk_id FROM chunks LIMIT 10")]
        assert sorted(keyword_hits(snapshot, '"wind"', [WHOLE_FILE], 20)) == first
        other = Filters(without={first[0]})
        hits = keyword_hits(snapshot, '"wind"', [WHOLE_FILE], 20, other)
        assert {*first[1:]} < hits.keys()
        assert len(hits) == 10


def test_words_are_counted_farther_where_that_is_asked_for(fill: Filler) -> None:
    kb = fill(PAGES, embed=False)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        assert snapshot.df(['"wind"'], 5) == {'"wind"': 5}
        assert snapshot.df(['"wind"', '"page"'], 30) == {'"wind"': 21, '"page"': 20}
        assert snapshot.df(['"wind"'], 5) == {'"wind"': 5}


def test_common_words_rank_what_rare_ones_find_as_if_they_had_found_it(
    fill: Filler, some_are_many: None
) -> None:
    kb = fill(SOME, embed=False)
    asked = ['"wind"', '"anemometer"', '"gust" OR "squall"']
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        finding, following = split_by_rarity(snapshot, asked)
        assert (finding, following) == (['"anemometer"'], ['"gust" OR "squall"', '"wind"'])
        all_words = keyword_hits(snapshot, " OR ".join(asked), [WHOLE_FILE], 5)
        assert word_hits(snapshot, finding, following, [WHOLE_FILE], 5) == all_words
        few = word_hits(snapshot, finding, following, [WHOLE_FILE], 12)
        assert len(few) == 12  # the rare word alone finds five
        others = {chunk_id: all_words[chunk_id] for chunk_id in [*all_words][1:]}
        filters = Filters({*others})
        found = word_hits(snapshot, finding, following, [WHOLE_FILE], 4, filters=filters)
        assert [*found.items()] == [*others.items()]


def test_passages_with_two_common_words_are_found_where_rare_ones_find_too_few(
    fill: Filler, some_are_many: None
) -> None:
    kb = fill(SOME, embed=False)
    asked = ['"wind"', '"anemometer"', '"gust"']
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        finding, following = split_by_rarity(snapshot, asked)
        assert (finding, following) == (['"anemometer"'], ['"gust"', '"wind"'])
        every = keyword_hits(snapshot, " OR ".join(asked), [WHOLE_FILE], 25)
        rare = matching(connection, '"anemometer"', [WHOLE_FILE])
        both = matching(connection, '"gust" AND "wind"', [WHOLE_FILE])
        found = word_hits(snapshot, finding, following, [WHOLE_FILE], 20, enough=10)
        assert {*found} == rare | both != every.keys()
        assert found == {chunk_id: every[chunk_id] for chunk_id in rare | both}
        assert [*found.values()] == sorted(found.values(), reverse=True)
        # Only two common words, and none that is rare.
        found = word_hits(snapshot, [], following, [WHOLE_FILE], 20, enough=5)
        assert {*found} == both
        found = word_hits(snapshot, [], following, [WHOLE_FILE], 20, enough=len(both) + 1)
        assert {*found} > both


def test_words_that_all_are_common_are_looked_up_nevertheless(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = fill(PAGES, embed=False)
    units = [Term('"wind"'), Term('"anemometer"')]
    monkeypatch.setattr("kb.search.files.MAX_DF", 10)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        (chunk,) = matching(connection, '"anemometer"', [WHOLE_FILE])
        document_of = documents_of_chunks(connection, [chunk])
        both = match_terms(snapshot, units, ['"wind"'], document_of, ())
        assert both.postings['"wind"'].is_common
        assert coverage(both, corpus_statistics([both])).held == {chunk: 1.0}
        alone = match_terms(snapshot, units[:1], ['"wind"'], document_of, ())
        assert alone.postings['"wind"'].df == 21
        assert coverage(alone, corpus_statistics([alone])).held == {
            chunk: 1.0
        }  # where there is no other word it counts


def test_only_the_documents_of_the_best_candidates_are_looked_at_as_a_whole(fill: Filler) -> None:
    kb = fill(PAGES, embed=False)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        chunks = sorted(matching(connection, '"wind"', [WHOLE_FILE]))[:2]
        document_of = documents_of_chunks(connection, chunks)
        first, second = (document_of[one] for one in chunks)
        found = match_terms(snapshot, [Term('"wind"')], ['"wind"'], document_of, {first})
        assert found.postings['"wind"'].chunks == {*chunks}
        assert found.frequencies['"wind"'].keys() == found.lengths.keys() == {first} != {second}
        assert document_shares(found, corpus_statistics([found])).keys() == {first}


def test_passages_are_counted_anew_when_the_file_has_changed(fill: Filler) -> None:
    kb = fill(PAGES, embed=False)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        assert snapshot.sizes == (21, 21)
    with kb.database.write() as connection:
        snapshot = Snapshot(connection)
        (last, *_) = [row[0] for row in connection.tuples("all_document_ids")]
        connection.run("delete_document", document_id=last)
        assert snapshot.sizes == (20, 20)
    with kb.database.read() as connection:
        snapshot = Snapshot(connection)
        assert snapshot.sizes == (20, 20)


def best(kb: Session, text: str) -> tuple[str, float]:
    """The first passage's document for a query, and its score."""
    with kb.database.read() as connection:
        first = hits_of(connection, parse_query(text))[0]
        return paths_of_chunks(connection, [first.chunk_id])[first.chunk_id], first.score


def test_words_of_nearly_every_passage_make_none_relevant(fill: Filler) -> None:
    pages = {
        f"{n}.md": f"# Page {n}\n\nThe vane of mast {n} turns to the wind.\n" for n in range(150)
    }
    pages["rare.md"] = "# Notes\n\nThe anemometer is of brass.\n"
    kb = fill(pages, embed=False)
    for text in ("the", "of the", "to the", "to", "wind", "turns", "vane wind", "+the"):
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


def test_function_words_of_other_scripts_make_nothing_relevant(fill: Filler) -> None:
    # In a file of mostly English pages they are as rare as any word.
    kb = fill(
        {f"{n}.md": f"# Page {n}\n\nThe vane of mast {n} turns.\n" for n in range(150)}
        | {
            "zh.md": "# 雨量\n\n雨量计的读数是什么。\n",
            "ja.md": "# 風向\n\n風の向きを測ります。ねこです。\n",
            "ru.md": "# Флюгер\n\nФлюгер и мачта.\n",
        },
        embed=False,
    )
    for text in ("的", "什么", "の", "です", "ます。", "и"):
        assert best(kb, text)[1] < RELEVANT, text
    for text, path in (("雨", "zh.md"), ("風", "ja.md"), ("ねこ", "ja.md"), ("мачта", "ru.md")):
        found, score = best(kb, text)
        assert (found, score >= RELEVANT) == (path, True), text


def test_an_emoji_that_stands_nowhere_takes_nothing_from_the_words_beside_it(fill: Filler) -> None:
    pages = {f"{n}.md": f"# Page {n}\n\nMast {n} turns.\n" for n in range(20)}
    kb = fill(
        {**pages, "vane.md": "# Vane\n\nA vane. 😀\n", "cup.md": "# Cup\n\nA vane.\n"},
        embed=False,
    )
    (document, score), alone = best(kb, "vane 🚀"), best(kb, "vane")
    assert (document, score) == (alone[0], pytest.approx(alone[1], abs=0.001))
    assert best(kb, "vane 😀")[0] == "vane.md"
