"""Scores in words: one list for the terminal and the page."""

from __future__ import annotations

import pytest

from kb.results.search import score_word
from kb.search.ranking import RELEVANT
from kb.server.page.render import page


@pytest.mark.parametrize(
    ("score", "word"),
    [
        (0.99, "very likely"),
        (0.9, "very likely"),
        (0.7, "likely"),
        (0.4, "maybe"),
        (0.0, "unlikely"),
    ],
)
def test_the_page_says_the_word_that_the_terminal_says(score: float, word: str) -> None:
    row = {
        "collection": "docs",
        "documentId": "a.md",
        "documentTitle": "A",
        "sectionHeading": "",
        "startLine": 1,
        "endLine": 2,
        "relevanceScore": score,
        "changedSinceSync": False,
        "pieces": [("text", False)],
        "address": "/doc",
    }
    shown = page("results.html", query="a", documents=[[row]], is_likely=True, notice="")
    assert f"{score:.2f} {word}</span>" in bytes(shown.body).decode()
    assert score_word(score) == word


def test_what_counts_as_relevant_is_likely_and_nothing_less() -> None:
    assert score_word(RELEVANT) == "likely"
    assert score_word(RELEVANT - 0.01) == "maybe"
