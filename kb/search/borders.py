"""Phrases that begin in one chunk and end in another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from kb.search.candidates import bodies, match_words_of, matching, slices
from kb.search.query import quote
from kb.search.words import (
    Pattern,
    find,
    first_words,
    split_for,
    starts_with,
    unspaced_runs,
    without_first,
)
from kb.store.chunks import documents_of_chunks
from kb.store.connection import Connection
from kb.store.contents import texts_of
from kb.store.ids import ChunkRange

DOCUMENTS_AT_ONCE = 50  # whose texts are held in memory
# A pasted page is a phrase of hundreds of words, which may be cut at each of them.
WORDS_LOOKED_UP = 12  # of a rest; the text decides about the others
MOST_WORDS_OF_A_CHUNK = 1000  # four a token of its budget; a longer rest begins no chunk


class Place(NamedTuple):
    """Where a chunk lies in its document's text, in characters."""

    chunk_id: int
    start: int
    end: int


def across_chunks(
    connection: Connection, wanted: Pattern, ranges: Sequence[ChunkRange]
) -> set[int]:
    """The chunks that a phrase overlaps which begins in one chunk and ends in another.

    The last chunk of such a place begins with the rest of the phrase, which the keyword index
    finds directly ("^"); what comes before it is then read in the document.
    """
    ends: set[int] = set()
    for first in range(max(1, len(wanted.words) - MOST_WORDS_OF_A_CHUNK), len(wanted.words)):
        rest = without_first(wanted, first)
        looked_up = first_words(rest, WORDS_LOOKED_UP)
        unspaced, others = unspaced_runs(looked_up)
        if unspaced or looked_up.has_pictographs:
            match = match_words_of(looked_up)
        else:
            in_a_row = quote(" ".join(others)) + ("*" if looked_up.is_prefix else "")
            each = [quote(word) for word in others]
            match = f"(body : ^ {in_a_row}) OR (extra : ({' OR '.join(each)}))"
        for chunk_id, *_, body in bodies(connection, matching(connection, match, ranges)):
            if starts_with(connection, body, rest):
                ends.add(chunk_id)
    found: set[int] = set()
    document_ids = sorted(set(documents_of_chunks(connection, ends).values()))
    for ids in slices(document_ids, DOCUMENTS_AT_ONCE):
        listed = json.dumps(ids)
        places = {
            document_id: [Place(*row[1:]) for row in rows]
            for document_id, rows in groupby(
                connection.tuples("chunk_places", document_ids=listed), key=lambda row: row[0]
            )
        }
        for row in texts_of(connection, ids):
            chunks = places[row["document_id"]]
            for number, chunk in enumerate(chunks):
                if chunk.chunk_id in ends:
                    found |= _overlapped(connection, row["content"], chunks[: number + 1], wanted)
    return found


def _overlapped(
    connection: Connection, content: str, chunks: Sequence[Place], wanted: Pattern
) -> set[int]:
    """The chunks that a phrase overlaps which ends in the last of some chunks but begins before."""
    last = chunks[-1]
    begin = len(chunks) - 1
    before = 0
    while begin and before < len(wanted.words):
        begin -= 1
        stretch = content[chunks[begin].start : last.start]
        before = len(split_for(connection, stretch, wanted).words)
    offset = chunks[begin].start
    words = split_for(connection, content[offset : last.end], wanted)
    found: set[int] = set()
    for i, j in find(words, wanted):
        start, end = offset + words.starts[i], offset + words.ends[j - 1]
        if start < last.start < end:
            found |= {one.chunk_id for one in chunks[begin:] if one.start < end and one.end > start}
    return found
