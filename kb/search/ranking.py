"""How evidence becomes an order: keyword and vector scores of passages and of whole documents.

score = (1 - w) * keywords + w * meaning, each divided by its greatest value among the candidates:

- keywords: a third the passage's bm25, two thirds its document's, each divided by its greatest;
- meaning: cosine of the passage, plus three quarters of that of its document's mean vector;
- w: 0.65, times the share of the query's letters that the model can read; 0.75 with a
  multilingual model.

Documents in the question's own script come before translations of them, and passages that hold
the query's very words before all others: both add to the score.

Both parts are known for every candidate, whichever list it came from. Figures and what was tried
and dropped: docs/decisions/0003-ranking.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kb.text.terms import scripts

MEANING_WEIGHT = 0.65  # 0.6 to 0.7 are much alike
# With a multilingual model: the keywords of other languages, which nothing stems, find less.
MULTILINGUAL_MEANING_WEIGHT = 0.75
DOCUMENT_SHARE = 2 / 3  # of the keyword evidence
DOCUMENT_COSINE = 3 / 4  # beside 1 of the passage's
SCRIPT_BONUS = 0.1  # 0.05 to 0.3 give the same order of translations
PROMINENT_SCRIPT = 0.1  # share of letters: a page that names π is not in Greek
LAST_LATIN_LETTER = "\u024f"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One passage with all that is known of how it fits the query.

    bm25 scores are positive, greater is better, 0 where no word matched. Cosines are None while
    there is no vector.
    """

    chunk_id: int
    document_id: int
    keyword_score: float
    document_keyword_score: float
    cosine: float | None
    document_cosine: float | None
    bonus: float = 0.0  # for the query's very words and its script


def meaning_weight(text: str, english_model: bool) -> float:
    """The share of the meaning in the score of a query's text."""
    if english_model:
        return MEANING_WEIGHT * readable_share(text)
    return MULTILINGUAL_MEANING_WEIGHT


def readable_share(text: str) -> float:
    """The share of a text's letters that an English model can read; 1 when it has none.

    Cosines of other scripts are noise to it: with Japanese questions a fusion at full weight
    found less than keywords alone.
    """
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return 1.0
    return sum(character <= LAST_LATIN_LETTER for character in letters) / len(letters)


def script_bonus(asked: frozenset[str] | None, beginning: str) -> float:
    """What a document in the script of the question has before others (see `scripts_asked`).

    Args:
        beginning: some text of the document.
    """
    if asked is None:
        return 0.0
    written = scripts(beginning, PROMINENT_SCRIPT)
    together = asked | written
    return SCRIPT_BONUS * (len(asked & written) / len(together) if together else 1.0)


def rank(candidates: Sequence[Candidate], meaning_weight: float) -> list[tuple[Candidate, float]]:
    """The candidates with their scores, best first; ties by meaning, then by id."""
    keywords = _keyword_evidence(candidates)
    meaning = _scaled({one.chunk_id: _meaning(one) for one in candidates})
    scored = [
        (
            one,
            (1 - meaning_weight) * keywords[one.chunk_id]
            + meaning_weight * meaning[one.chunk_id]
            + one.bonus,
        )
        for one in candidates
    ]
    scored.sort(key=lambda pair: (-pair[1], -meaning[pair[0].chunk_id], pair[0].chunk_id))
    return scored


def spread(ranked: Sequence[tuple[Candidate, float]]) -> list[tuple[Candidate, float]]:
    """The same candidates with the best passage of each document before any second one.

    A page of results is then not five passages of one document while others have an answer too.
    """
    seen: set[int] = set()
    first: list[tuple[Candidate, float]] = []
    further: list[tuple[Candidate, float]] = []
    for pair in ranked:
        document_id = pair[0].document_id
        (further if document_id in seen else first).append(pair)
        seen.add(document_id)
    return first + further


def _keyword_evidence(candidates: Sequence[Candidate]) -> dict[int, float]:
    passages = _scaled({one.chunk_id: one.keyword_score for one in candidates})
    documents = _scaled({one.chunk_id: one.document_keyword_score for one in candidates})
    return _scaled(
        {
            key: (1 - DOCUMENT_SHARE) * passages[key] + DOCUMENT_SHARE * documents[key]
            for key in passages
        }
    )


def _meaning(candidate: Candidate) -> float:
    if candidate.cosine is None:
        return 0.0
    document_cosine = candidate.document_cosine or 0.0
    return max(candidate.cosine + DOCUMENT_COSINE * document_cosine, 0.0)


def _scaled(values: Mapping[Key, float]) -> dict[Key, float]:
    """Values divided by the greatest one; all 0 when that is 0."""
    greatest = max(values.values(), default=0.0)
    return {key: value / greatest if greatest > 0 else 0.0 for key, value in values.items()}
