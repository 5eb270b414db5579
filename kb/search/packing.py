"""Packs the best evidence for a question into so many characters.

A short section is given whole, of a long one the passage with its neighbours; adjacent parts become
one text. Passages end where blocks end (`kb/formats/chunk.py`), so only the one passage that fills
the remaining room is cut inside a block, after a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kb.store.connection import Row
from kb.text.sentences import cut_at_sentence

MIN_SCORE = 0.1  # below it a passage is usually noise
SHARES = 2  # a section of up to the size divided by this is given whole
MIN_PART = 250  # characters of a passage that is cut to the remaining room
MIN_FIRST_PART = 80  # of the best one
PART_OVERHEAD = 75  # characters of a part's keys and numbers in JSON
DOCUMENT_OVERHEAD = 80  # of a document's
ESCAPED = 0.94  # share of JSON's characters that are the text's; the others escape line ends


class Passage(NamedTuple):
    """A passage of a document and its lead, as ranges of the text; `section` is None before any."""

    document_id: int
    section: int | None
    start_line: int
    end_line: int
    start: int
    end: int
    lead_start: int
    lead_end: int


class Candidate(NamedTuple):
    """A passage that answers: `document` is the key of its text, `position` counts from 1."""

    document: Any
    position: int
    score: float


@dataclass
class PackedText:
    """A document that parts are taken from; `header`: characters that naming it takes; `sections`:
    rows with `position`, `level`, `heading_path`, `start_line` and `end_line`."""

    header: int
    text: str
    passages: Sequence[Passage]
    sections: Sequence[Row]
    parts: list[PackedPart] = field(default_factory=list)


@dataclass
class PackedPart:
    """Consecutive passages, by their inclusive indexes; `end` cuts the last one's text."""

    first: int
    last: int
    score: float
    end: int

    def text_of(self, document: PackedText) -> str:
        opening = document.passages[self.first]
        lead = document.text[opening.lead_start : opening.lead_end]
        body = document.text[opening.start : self.end].rstrip()
        return f"{lead}\n{body}" if lead else body


def pack(
    candidates: Sequence[Candidate],
    documents: Mapping[Any, PackedText],
    max_characters: int,
) -> list[Candidate]:
    """Fill parts with the best candidates (best first), headings included; returns those left."""
    room = max_characters
    omitted: list[Candidate] = []
    for candidate in candidates:
        document = documents[candidate.document]
        index = candidate.position - 1
        if candidate.score < MIN_SCORE or any(
            part.first <= index <= part.last for part in document.parts
        ):
            continue
        header = 0 if document.parts else document.header + DOCUMENT_OVERHEAD
        overhead = header + PART_OVERHEAD + len(heading_of(document, index))
        most = room - overhead
        part = _widest(document, index, candidate.score, min(most, max_characters // SHARES))
        size = _new_characters(document, part)
        least = MIN_FIRST_PART if room == max_characters else MIN_PART
        if size > most >= least:
            start, end = document.passages[index].start, document.passages[index].end
            end = cut_at_sentence(document.text, start, end, int(most * ESCAPED))
            part, size = PackedPart(index, index, candidate.score, end), most
        if size > most:
            omitted.append(candidate)
            continue
        parts = len(document.parts)
        _add(document, part)
        room -= size + overhead if len(document.parts) > parts else size
    return omitted


def heading_of(document: PackedText, index: int) -> str:
    """The path of headings above a passage; "" before any."""
    section = document.passages[index].section
    return "" if section is None else str(document.sections[section]["heading_path"] or "")


def _widest(document: PackedText, index: int, score: float, most: int) -> PackedPart:
    """A passage's section if it is short enough, else the passage with its neighbours."""
    first, last = _section_around(document, index)
    if _length(document, first, last) <= most:
        return _part(document, first, last, score)
    start = end = index
    while True:  # what follows explains more often than what precedes
        if end < last and _length(document, start, end + 1) <= most:
            end += 1
        elif start > first and _length(document, start - 1, end) <= most:
            start -= 1
        else:
            return _part(document, start, end, score)


def _section_around(document: PackedText, index: int) -> tuple[int, int]:
    """The first and last passage of the innermost section, subsections included."""
    passages = document.passages
    number = passages[index].section
    if number is None:
        inside = [at for at, passage in enumerate(passages) if passage.section is None]
    else:
        section = document.sections[number]
        inside = [
            at
            for at, passage in enumerate(passages)
            if section["start_line"] <= passage.start_line <= section["end_line"]
        ]
    return (min([*inside, index]), max([*inside, index]))


def _length(document: PackedText, first: int, last: int) -> int:
    return document.passages[last].end - document.passages[first].start


def _part(document: PackedText, first: int, last: int, score: float) -> PackedPart:
    return PackedPart(first, last, score, document.passages[last].end)


def _new_characters(document: PackedText, part: PackedPart) -> int:
    """How many more characters the document takes with a part."""
    covered = {at for other in document.parts for at in range(other.first, other.last + 1)}
    return sum(
        len(json.dumps(document.text[passage.lead_start : passage.lead_end], ensure_ascii=False))
        + len(json.dumps(document.text[passage.start : passage.end], ensure_ascii=False))
        for at, passage in enumerate(document.passages[part.first : part.last + 1], part.first)
        if at not in covered
    )


def _add(document: PackedText, part: PackedPart) -> None:
    """Add a part, merged with those that it touches."""
    for other in [*document.parts]:
        if other.first <= part.last + 1 and part.first <= other.last + 1:
            document.parts.remove(other)
            ends = part if part.last >= other.last else other
            part = PackedPart(
                min(part.first, other.first), ends.last, max(part.score, other.score), ends.end
            )
    document.parts.append(part)
    document.parts.sort(key=lambda part: part.first)
