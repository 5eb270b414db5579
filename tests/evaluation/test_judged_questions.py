"""The form of the judged questions; `scripts/bench/questions --check` holds them to the pages."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from support import ROOT

from kb.evaluation.judged import read_questions

FILE = ROOT / "fixtures" / "questions" / "judged.jsonl"
FIELDS = {"id", "documentation", "language", "kind", "part", "question", "document", "heading"}
MOST_OF_A_PAGE = 3


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_each_question_has_all_fields_and_stands_once(questions: list[dict[str, Any]]) -> None:
    for question in questions:
        assert FIELDS <= question.keys() <= FIELDS | {"alternatives"}, question
        assert all(question[field].strip() == question[field] != "" for field in FIELDS), question
        assert question["document"] not in question.get("alternatives", ())
    for field in ("id", "question"):
        assert max(Counter(question[field] for question in questions).values()) == 1
    assert len(read_questions(FILE).headings) == len(questions)


def test_there_are_enough_of_each_language_and_half_of_them_avoid_the_words(
    questions: list[dict[str, Any]],
) -> None:
    kinds = Counter((question["language"], question["kind"]) for question in questions)
    halves = {("en", 125), ("ja", 50), ("zh", 50)}
    assert kinds == {(name, kind): n for name, n in halves for kind in ("words", "meaning")}
    assert len({question["documentation"] for question in questions}) == 4


def test_half_of_each_kind_is_held_out_by_whole_pages(questions: list[dict[str, Any]]) -> None:
    parts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    of_page: dict[tuple[str, str], list[str]] = defaultdict(list)
    for question in questions:
        parts[question["language"], question["kind"]][question["part"]] += 1
        of_page[question["documentation"], question["document"]].append(question["part"])
    for counts in parts.values():
        assert set(counts) == {"training", "held-out"}
        assert abs(counts["training"] - counts["held-out"]) <= 1
    for page in of_page.values():
        assert len(page) <= MOST_OF_A_PAGE
        assert len(set(page)) == 1
