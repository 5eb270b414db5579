"""The best evidence for a question fits into the length that was asked for, without repeats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import Filler, call

from kb.errors import UsageError
from kb.tools.session import Session

VANE = "how do I calibrate the wind vane?"
QUESTIONS = (VANE, "battery life in winter", "E417", "which port does the exporter use", "+gust")


def length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("most", [500, 1000, 3000, 20_000, 40_000])
def test_the_reply_keeps_its_length_and_uses_it(windrose: Session, most: int) -> None:
    for question in QUESTIONS:
        reply = call(windrose, "documents_context", query=question, maxCharacters=most)
        assert reply["documents"]
        assert length(reply) <= most
        if most <= 3000:
            assert length(reply) > most * 0.6


def test_parts_are_the_documents_own_lines_in_their_order(windrose: Session) -> None:
    for question in QUESTIONS:
        for document in windrose.base.context(question):
            lines = windrose.base.get(document.document_id).content.split("\n")
            end = 0
            for part in document.parts:
                assert part.start_line > end  # so that no line is there twice
                # What touches is one part, whatever its headings.
                assert not end or "".join(lines[end : part.start_line - 1]).strip()
                end = part.end_line
                text = "\n".join(lines[part.start_line - 1 : part.end_line])
                # In front of it may stand its lead: the head of a table, what introduces a list.
                last_line = part.content.split("\n")[-1]
                assert last_line in text
                assert part.content in text or text.startswith(part.content.split("\n")[1])


def test_documents_come_by_their_best_part(windrose: Session) -> None:
    context = windrose.base.context(VANE, max_characters=6000)
    scores = [document.score for document in context]
    assert scores == sorted(scores, reverse=True)
    assert all(document.score == max(part.score for part in document.parts) for document in context)
    best = windrose.base.search(VANE, limit=1).results[0]
    assert context.documents[0].document_id == best.document_id
    assert context.documents[0].score == best.relevance_score


def test_a_short_section_is_whole_and_a_long_one_has_neighbours(fill: Filler) -> None:
    short = "Ropes are dried in the shade.\n\nNever on a stove, which makes them brittle."
    long = "\n\n".join(
        f"Paragraph {number} of harbours tells about quays." * 6 for number in range(60)
    )
    kb = fill(
        {"ropes.md": f"# Yard\n\n## Drying ropes\n\n{short}\n", "quays.md": f"# Q\n\n{long}\n"}
    )
    (document,) = [
        document
        for document in kb.base.context("dry ropes on a stove")
        if document.document_id == "ropes.md"
    ]
    assert short in document.parts[0].content
    (document,) = kb.base.context("Paragraph 30 of harbours", paths=["quays.md"])
    assert len(document.parts[0].content) < 3000
    row = kb.base.search("Paragraph 30 of harbours", paths=["quays.md"], limit=1).results[0]
    longest = max(document.parts, key=lambda part: len(part.content))
    assert len(longest.content) > 0.5 * len(row.content)


def test_what_found_no_room_is_told_with_its_lines(windrose: Session) -> None:
    context = windrose.base.context(VANE, max_characters=1200)
    assert context.more
    given = {
        (document.document_id, line)
        for document in context
        for part in document.parts
        for line in range(part.start_line, part.end_line + 1)
    }
    for omitted in context.more:
        assert (omitted.document_id, omitted.start_line) not in given
        text = windrose.base.get(
            omitted.document_id, start_line=omitted.start_line, end_line=omitted.end_line
        )
        assert text.content.strip()


def test_dense_text_keeps_the_budget_of_a_reply(fill: Filler) -> None:
    text = "风速计的校准步骤如下。先把风向标对准北方，然后保存偏移量。" * 400
    kb = fill({"校准.md": f"# 校准\n\n{text}\n"})
    kb.reply_tokens = 2000
    reply = call(kb, "documents_context", query="风速计 校准", maxCharacters=40_000)
    assert reply["documents"]
    assert length(reply) < 3000
    assert "full" in reply["notice"]


def test_nothing_likely_is_an_empty_answer(windrose: Session) -> None:
    assert windrose.base.context("-vane").documents == []
    assert call(windrose, "documents_context", query="")["documents"] == []


@pytest.mark.parametrize("most", [0, 499, 40_001])
def test_a_length_out_of_bounds_is_refused(windrose: Session, most: int) -> None:
    with pytest.raises(UsageError, match="500 to 40,000"):
        windrose.base.context(VANE, max_characters=most)
