"""How evidence becomes a score: the pure function."""

import pytest

from kb.search.ranking import Evidence, explained, rank, support, typed_evidence

NOTHING = Evidence(1, 1, words=0.0, document_words=0.0, cosine=0.1, document_cosine=0.1)
ANSWER = NOTHING._replace(words=0.5, document_words=0.6, cosine=0.6, document_cosine=0.5)


def score(one: Evidence, readable: float = 1.0) -> float:
    return rank([one], readable)[0].score


def test_unrelated_text_stays_far_below_an_answer() -> None:
    assert score(NOTHING) < 0.1
    assert score(ANSWER) > 0.7


@pytest.mark.parametrize("better", [
    {"words": 0.6}, {"document_words": 0.7}, {"cosine": 0.7}, {"document_cosine": 0.6},
    {"script": 1.0}, {"is_literal": True}, {"is_title": True}, {"held": 0.9, "rarity": 1.0},
])  # fmt: skip
def test_more_evidence_of_any_kind_raises_the_score(better: dict[str, float]) -> None:
    assert score(ANSWER._replace(**better)) > score(ANSWER)


@pytest.mark.parametrize("kind", ["words", "document_words"])
def test_the_first_words_that_are_found_tell_more_than_the_last(kind: str) -> None:
    def gain(before: float, after: float) -> float:
        return support(NOTHING._replace(**{kind: after}), 1.0) - support(
            NOTHING._replace(**{kind: before}), 1.0
        )

    assert gain(0.1, 0.3) > gain(0.7, 0.9) + 0.01


def test_rare_words_that_a_passage_holds_as_typed_are_enough() -> None:
    assert score(NOTHING._replace(held=0.8, rarity=1.0)) >= 0.7
    assert score(NOTHING._replace(held=0.8, rarity=0.1)) < 0.7  # every other passage has them
    assert score(NOTHING._replace(held=0.8, rarity=0.1, is_titled=True)) >= 0.7
    assert typed_evidence(NOTHING._replace(held=0.6, rarity=1.0)) == 0


def test_words_that_nearly_every_passage_holds_are_no_evidence_unless_they_are_the_title() -> None:
    held = ANSWER._replace(held=1.0, rarity=1.0, is_titled=True)
    assert score(held._replace(telling=0.2)) < score(held._replace(telling=0.6)) < score(held)
    assert typed_evidence(held._replace(telling=0.2)) < 0.2
    assert typed_evidence(held._replace(telling=0.2, is_title=True)) == typed_evidence(held)


def test_stop_words_in_a_row_make_nothing_relevant() -> None:
    row = Evidence(1, 1, words=1.0, document_words=1.0, is_literal=True)
    assert score(row) >= 0.7
    assert score(row._replace(telling=0.3)) < 0.7


def test_the_very_characters_stand_before_the_words_in_a_better_document() -> None:
    words = NOTHING._replace(words=0.6, document_words=0.8, held=1.0, rarity=1.0, is_literal=True)
    typed = words._replace(chunk_id=2, document_words=0.4, is_typed=True)
    assert [row.evidence.chunk_id for row in rank([words, typed], 1.0)] == [2, 1]


def test_scores_depend_on_no_other_row_and_never_reach_one() -> None:
    rows = rank([NOTHING, ANSWER._replace(chunk_id=2)], 1.0)
    assert [row.evidence.chunk_id for row in rows] == [2, 1]
    assert [row.score for row in rows] == [score(ANSWER), score(NOTHING)]
    everything = ANSWER._replace(words=1.0, document_words=1.0, cosine=1.0, document_cosine=1.0)
    assert 0.985 < score(everything) < 0.99
    assert score(everything._replace(is_named=True)) == 0.99


def test_what_is_nearly_sure_is_told_apart_by_the_fourth_digit() -> None:
    sure = ANSWER._replace(words=1.0, document_words=1.0, is_title=True)
    more = [{"cosine": 0.7}, {"cosine": 0.9}, {"is_typed": True}]
    sure = sure._replace(is_opening=True)
    scores = [score(sure), *(score(sure._replace(**better)) for better in more)]
    assert scores == sorted({*scores})
    assert {f"{one:.2f}" for one in scores} == {"0.99"}


def test_equal_evidence_is_ordered_by_document_then_position() -> None:
    rows = [ANSWER._replace(chunk_id=i, document_id=d) for i, d in ((5, 2), (9, 1), (4, 2))]
    assert [row.evidence.chunk_id for row in rank(rows, 1.0)] == [9, 4, 5]


def test_what_has_no_meaning_is_judged_by_its_words() -> None:
    without = ANSWER._replace(cosine=None, document_cosine=None)
    assert support(without, 1.0) == support(ANSWER, 0.0)
    assert support(without._replace(words=0.9), 1.0) > support(without, 1.0)


def test_beside_vectors_a_passage_without_one_is_judged_as_if_it_meant_what_its_words_say() -> None:
    without = ANSWER._replace(chunk_id=2, cosine=None, document_cosine=None)
    alike, alone = rank([ANSWER, without], 1.0), rank([without], 1.0)
    assert alike[0].score - alike[1].score < 0.1
    assert alone[0].score > alike[1].score
    # What no model can read is judged by its words, with a vector and without.
    assert len({row.score for row in rank([ANSWER, without], 0.0)}) == 1


def test_an_explanation_names_the_evidence() -> None:
    assert "as it was typed" in explained(ANSWER._replace(is_typed=True))
    assert "42%" in explained(ANSWER._replace(held=0.42))
    assert "very many passages" in explained(ANSWER._replace(held=0.42, telling=0.2))
    assert "very near" in explained(ANSWER)
    assert "has no vector yet: judged by words" in explained(ANSWER._replace(cosine=None))
    asked_for_words = explained(ANSWER, by_words=True)
    assert "judged by words alone" in asked_for_words
    assert "vector" not in asked_for_words
    assert "near" not in asked_for_words
    titled = ANSWER._replace(held=0, is_literal=False, is_typed=False, is_titled=True)
    assert explained(titled).startswith("its title or heading holds all of the query")
    assert explained(None) == "near in meaning"


def test_more_is_asked_of_a_row_where_another_holds_all_words() -> None:
    some = [ANSWER._replace(chunk_id=n, cosine=0.6 - n / 20, held=0.4) for n in range(3)]
    typed = ANSWER._replace(chunk_id=9, words=0.1, document_words=0.0, held=0.9, rarity=1.0)
    before = [one.score for one in rank(some, 1.0)]
    after = {one.evidence.chunk_id: one.score for one in rank([*some, typed], 1.0)}
    assert all(after[n] < score for n, score in enumerate(before))
    assert [*after].index(0) < [*after].index(1) < [*after].index(2)
    assert after[9] >= 0.7
    common = typed._replace(telling=0.25)  # all passages hold such words: nothing follows
    assert [one.score for one in rank([*some, common], 1.0) if one.evidence in some] == before
