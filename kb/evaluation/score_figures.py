"""What scores are worth: whether they fall, what 0.7 tells, and whether names are found by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kb.evaluation.judged import Judged
from kb.evaluation.questions import MadeQuestion, Page
from kb.search.files import SearchedFile
from kb.search.policy import SearchRequest
from kb.search.ranking import RELEVANT
from kb.search.run import run
from kb.store.contents import pages_of

FIRST_ROWS = 10
ROWS = 100  # a question

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The scores of one question's answer, by row, and the best of each document."""

    scores: list[float]
    documents: dict[str, float]  # best first


def judged_figures(
    files: Sequence[SearchedFile], judged: Judged, progress: Progress = lambda *_: None
) -> dict[str, float]:
    """How often scores rise, and F1 at 0.7 as a share of the best threshold's."""
    pairs: list[tuple[float, bool]] = []
    rising = neighbours = relevant = 0
    for done, (key, question) in enumerate(judged.questions.items()):
        progress("scores", done, len(judged.questions))
        answer = _ask(files, question)
        first = answer.scores[:FIRST_ROWS]
        neighbours += max(len(first) - 1, 0)
        rising += sum(after > before for before, after in pairwise(first))
        answers = judged.relevant[key]
        relevant += sum(grade > 0 for grade in answers.values())
        pairs += [(score, answers.get(path, 0) > 0) for path, score in answer.documents.items()]
    best, threshold, at = best_threshold(pairs, relevant)
    return {
        "rising": rising / max(neighbours, 1),
        "bestF1": best,
        "bestThreshold": threshold,
        "shareOfBestF1": at / best if best else 0.0,
    }


def best_threshold(
    pairs: Sequence[tuple[float, bool]], relevant: int
) -> tuple[float, float, float]:
    """The greatest F1 of any threshold, that threshold, and F1 at 0.7.

    `pairs`: the score of each question and document, and whether that answers it; `relevant`: how
    many answers there are, found or not.
    """
    best = threshold = at = 0.0
    right = 0
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    for number, (score, is_right) in enumerate(ordered, 1):
        right += is_right
        if number < len(ordered) and ordered[number][0] == score:
            continue  # equal scores pass together
        f1 = 2 * right / (number + relevant)
        if score >= RELEVANT:
            at = f1
        if f1 > best:
            best, threshold = f1, score
    return best, threshold, at


def made_figures(
    files: Sequence[SearchedFile],
    made: Sequence[MadeQuestion],
    progress: Progress = lambda *_: None,
) -> list[dict[str, Any]]:
    """For each kind of question, how many come out right."""
    rows: dict[str, dict[str, Any]] = {}
    for done, question in enumerate(made):
        progress("questions", done, len(made))
        row = rows.setdefault(question.kind, {"kind": question.kind, "questions": 0})
        row["questions"] += 1
        for name, is_so in _outcome(question, _ask(files, question.question)).items():
            row[name] = row.get(name, 0) + is_so
    return [
        {
            key: round(value / row["questions"], 4) if key not in ("kind", "questions") else value
            for key, value in row.items()
        }
        for row in rows.values()
    ]


def pages(files: Sequence[SearchedFile]) -> list[Page]:
    """The documents of some files, to make questions from."""
    listed: list[Page] = []
    for file in files:
        with file.database.read() as connection:
            ranges, _ = file.names.ranges(connection, [])
            listed += [Page(*row) for place in ranges for row in pages_of(connection, place)]
    return listed


def _outcome(question: MadeQuestion, answer: _Answer) -> dict[str, bool]:
    best = next(iter(answer.documents), "")
    if question.kind == "unrelated":
        return {"at0.7": max(answer.scores, default=0.0) >= RELEVANT}
    right = max((answer.documents.get(path, 0.0) for path in question.documents), default=0.0)
    if question.kind == "near-miss":
        order = list(answer.documents)
        places = [order.index(path) for path in question.documents if path in order]
        wrong = [order.index(path) for path in question.behind if path in order]
        return {"before": bool(places) and (not wrong or min(places) < min(wrong))}
    return {"at0.7": right >= RELEVANT, "first": best in question.documents}


def _ask(files: Sequence[SearchedFile], question: str) -> _Answer:
    rows = run(files, SearchRequest(question, limit=ROWS)).rows
    documents: dict[str, float] = {}
    for row in rows:
        documents.setdefault(row["documentId"], row["relevanceScore"])
    return _Answer([row["relevanceScore"] for row in rows], documents)
