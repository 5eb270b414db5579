"""What scores are worth: whether they fall, what 0.7 tells, and whether names are found by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kb.evaluation.judged import Judged
from kb.evaluation.questions import MadeQuestion, Page
from kb.search.files import SearchedFile
from kb.search.passages import search_files
from kb.search.ranking import RELEVANT
from kb.store.contents import pages_of

FIRST_ROWS = 10
ROWS = 100  # a question

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Found:
    """What one question found: scores by row, and of each document the best."""

    scores: list[float]
    documents: dict[str, float]  # best first


def judged_figures(
    files: Sequence[SearchedFile], judged: Judged, progress: Progress = lambda *_: None
) -> dict[str, float]:
    """How often scores rise, and F1 at 0.7 as a share of that at the best threshold."""
    pairs: list[tuple[float, bool]] = []
    rising = neighbours = relevant = 0
    for done, (key, question) in enumerate(judged.questions.items()):
        progress("scores", done, len(judged.questions))
        found = _ask(files, question)
        first = found.scores[:FIRST_ROWS]
        neighbours += max(len(first) - 1, 0)
        rising += sum(after > before for before, after in pairwise(first))
        answers = judged.relevant[key]
        relevant += sum(grade > 0 for grade in answers.values())
        pairs += [(score, answers.get(path, 0) > 0) for path, score in found.documents.items()]
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

    Args:
        pairs: the score of each pair of a question and a document, and whether it is an answer.
        relevant: how many answers there are, found or not.
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
    """For each kind of made question how many come out right."""
    rows: dict[str, dict[str, Any]] = {}
    for done, one in enumerate(made):
        progress("questions", done, len(made))
        row = rows.setdefault(one.kind, {"kind": one.kind, "questions": 0})
        row["questions"] += 1
        for name, is_so in _outcome(one, _ask(files, one.question)).items():
            row[name] = row.get(name, 0) + is_so
    return [
        {
            key: round(value / row["questions"], 4) if key not in ("kind", "questions") else value
            for key, value in row.items()
        }
        for row in rows.values()
    ]


def pages(files: Sequence[SearchedFile]) -> list[Page]:
    """The documents of some files, as questions are made from them."""
    found: list[Page] = []
    for file in files:
        with file.database.read() as connection:
            ranges, _ = file.names.ranges(connection, [])
            found += [Page(*row) for place in ranges for row in pages_of(connection, place)]
    return found


def _outcome(one: MadeQuestion, found: _Found) -> dict[str, bool]:
    best = next(iter(found.documents), "")
    if one.kind == "unrelated":
        return {"at0.7": max(found.scores, default=0.0) >= RELEVANT}
    right = max((found.documents.get(path, 0.0) for path in one.documents), default=0.0)
    if one.kind == "near-miss":
        order = list(found.documents)
        places = [order.index(path) for path in one.documents if path in order]
        wrong = [order.index(path) for path in one.behind if path in order]
        return {"before": bool(places) and (not wrong or min(places) < min(wrong))}
    return {"at0.7": right >= RELEVANT, "first": best in one.documents}


def _ask(files: Sequence[SearchedFile], question: str) -> _Found:
    [rows] = search_files(files, [(question, [])], ROWS, 2.0, True, False).rows
    documents: dict[str, float] = {}
    for row in rows:
        documents.setdefault(row["documentId"], row["relevanceScore"])
    return _Found([row["relevanceScore"] for row in rows], documents)
