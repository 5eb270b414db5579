"""Passages that hold some words in a row.

The keyword index looks for a phrase by going through all passages that hold its words, side by
side: of eight words with "the" and "of" among 100,000 passages 1.6 ms, among a million 10. Where
words have been counted it is asked for the rarest of them near each other instead, which few
passages hold, and the texts of these are compared: 22 us each, .6 and 3 ms in all.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator, Sequence

from kb.search.candidates import matching
from kb.search.query import quote, says_little
from kb.search.word_counts import about_holding, file_sizes, most_ranked
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

RAREST = (3, 5)  # words that are looked for near each other; more where these are near too often
MOST_COMPARED = 300  # passages, which take as long as the phrase


def holding_in_a_row(connection: Connection, text: str, ranges: Sequence[ChunkRange]) -> set[int]:
    """The passages with a text's words in a row, by their stems, in one column of the index."""
    text = unicodedata.normalize("NFKC", text)
    for near in _rarest_near(connection, text):
        found = _some_matching(connection, near, ranges, MOST_COMPARED + 1)
        if len(found) <= MOST_COMPARED:
            return _compared(connection, found, connection.stems(text))
    return matching(connection, quote(text), ranges)


def _rarest_near(connection: Connection, text: str) -> Iterator[str]:
    """Expressions that whatever holds a text's words in a row matches."""
    total, _ = file_sizes(connection)
    most = most_ranked(total)
    if total <= most:
        return
    terms = connection.tokenize(text, stem=True)
    words = {stem: text[start:end] for start, end, stem in terms}.values()
    telling = [quote(word) for word in words if not says_little(word)]
    # They were counted to find passages by them; stop words would have to be counted first.
    counts = about_holding(connection, telling, most)
    telling.sort(key=counts.__getitem__)
    for number in RAREST:
        chosen = telling[:number]
        if 1 < len(chosen) < len(words):
            yield f"NEAR({' '.join(chosen)}, {len(terms)})"


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
