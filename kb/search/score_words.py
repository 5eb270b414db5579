"""A score in a word, the same on a terminal and on the page."""

from __future__ import annotations

__all__ = ["SCORE_WORDS", "score_word"]

# From which score on a row is called so; 0.7 is where a row most likely answers
# (docs/decisions/0008-scores.md).
SCORE_WORDS = ((0.9, "very likely"), (0.7, "likely"), (0.4, "maybe"), (0.0, "unlikely"))


def score_word(score: float) -> str:
    """The word for a score from 0 to 1."""
    return next(word for least, word in SCORE_WORDS if score >= least)
