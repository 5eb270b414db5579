"""Passages that hold some words in a row.

The keyword index looks for a phrase by going through all passages that hold its words, side by
side: of eight words with "the" and "of" among a million passages 10 ms. In a large file it is asked
for the rarest of them near each other instead, 1 ms, which few passages hold, and the texts of
these are compared: 22 us each.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator, Sequence

from kb.search.candidates import matching
from kb.search.query import quote
from kb.search.word_counts import about_holding, file_sizes
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

LARGE = (
    200_000  # passages of a file; in a smaller one counting the words takes as long as the phrase
)
COUNTED = 20_000  # passages, as far as that is known exactly
RAREST = (3, 5)  # words that are looked for near each other; more where these are near too often
MOST_COMPARED = 300  # passages, which take as long as the phrase


def holding_in_a_row(connection: Connection, text: str, ranges: Sequence[ChunkRange]) -> set[int]:
    """The passages with a text's words in a row, by their stems, in one column of the index."""
    text = unicodedata.normalize("NFKC", text)
    if file_sizes(connection)[0] >= LARGE:
        for near in _rarest_near(connection, text):
            found = _some_matching(connection, near, ranges, MOST_COMPARED + 1)
            if len(found) <= MOST_COMPARED:
                return _compared(connection, found, connection.stems(text))
    return matching(connection, quote(text), ranges)


def _rarest_near(connection: Connection, text: str) -> Iterator[str]:
    """Expressions that whatever holds a text's words in a row matches."""
    terms = connection.tokenize(text, stem=True)
    words = [quote(word) for word in {stem: text[start:end] for start, end, stem in terms}.values()]
    if len(words) > min(RAREST):
        counts = about_holding(connection, words, COUNTED)
        words.sort(key=counts.__getitem__)
    for number in RAREST:
        if len(words) > number:
            yield f"NEAR({' '.join(words[:number])}, {len(terms)})"


def _some_matching(
    connection: Connection, match: str, ranges: Sequence[ChunkRange], most: int
) -> list[int]:
    """So many of the passages that match an expression, or all."""
    found: list[int] = []
    for first, last in ranges:
        within = {"first": first, "last": last, "limit": most - len(found)}
        rows = connection.tuples("some_matching_chunk_ids", match=match, **within)
        found += [row[0] for row in rows]
    return found


def _compared(connection: Connection, chunk_ids: Collection[int], stems: Sequence[str]) -> set[int]:
    """Those of some passages that hold stems in a row."""
    wanted = f" {' '.join(stems)} "
    rows = connection.tuples("indexed_texts", chunk_ids=json.dumps(sorted(chunk_ids)))
    return {
        chunk_id
        for chunk_id, *texts in rows
        if any(wanted in f" {' '.join(connection.stems(one))} " for one in texts if one)
    }
