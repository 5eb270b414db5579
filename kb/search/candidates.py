"""What the keyword index proposes for a pattern, to be checked against the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from kb.formats.tags import names_of
from kb.search.query import quote
from kb.search.typos import prefix_bounds, prefixed
from kb.search.words import Pattern, unspaced_runs
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.store.vocabulary import beginning_of_words
from kb.text.terms import bigrams

WORDS_AT_ONCE = 500  # alternatives of one MATCH expression
CHUNKS_AT_ONCE = 1000  # whose texts are held in memory

T = TypeVar("T")


def match_words_of(wanted: Pattern) -> str:
    """A MATCH expression that every chunk with these words of a pattern satisfies."""
    unspaced, others = unspaced_runs(wanted)
    if not unspaced and not wanted.has_pictographs:
        in_a_row = quote(" ".join(others)) + ("*" if wanted.is_prefix else "")
        if len(others) == 1:
            return in_a_row
        # A word whose compatibility form differs stands in the column `extra`, out of its row.
        last = [quote(others[-1]) + ("*" if wanted.is_prefix else "")]
        each = [quote(word) for word in others[:-1]] + last
        return f"{in_a_row} OR ({' AND '.join(each)} AND extra : ({' OR '.join(each)}))"
    parts = [quote(word) for word in others]
    if wanted.is_prefix and others and wanted.folded[-1] == others[-1]:
        parts[-1] += "*"
    parts += [
        quote(run) + "*" if len(run) == 1 else quote(" ".join(bigrams(run))) for run in unspaced
    ]
    return " AND ".join(parts)


def word_of_each_stem(connection: Connection, prefix: str) -> dict[str, str]:
    """By each stem that words with a prefix (folded, one word) have, one of these words.

    The index stems what it is asked for, so it is asked for a word of each stem.
    """
    return {stem: word for word, stem in prefixed(connection, prefix).items()}


def words_with_prefix(connection: Connection, wanted: Pattern) -> tuple[list[str], list[str]]:
    """A word of each stem that words with a prefix have.

    First those whose stem no other word has, then those whose stem proves nothing: what they find
    must be checked.
    """
    prefix = wanted.folded[0]
    word_of = word_of_each_stem(connection, prefix)
    if wanted.case:
        return [], list(word_of.values())
    # A stem whose words all begin with the prefix has no others.
    beginnings = {
        stem: beginning
        for stem in word_of
        if not (beginning := beginning_of_words(stem)).startswith(prefix)
    }
    shared = {
        row[0]
        for row in connection.tuples(
            "stems_of_other_words", stems=json.dumps(beginnings), **prefix_bounds(prefix)
        )
    }
    return (
        [word for stem, word in word_of.items() if stem not in shared],
        [word for stem, word in word_of.items() if stem in shared],
    )


def matching_chunks(connection: Connection, match: str, within: ChunkRange) -> list[int]:
    """All chunks of a range that match an expression, unranked."""
    first, last = within
    rows = connection.tuples("matching_chunk_ids", match=match, first=first, last=last)
    return [row[0] for row in rows]


def matching(connection: Connection, match: str, ranges: Iterable[ChunkRange]) -> set[int]:
    """The chunks of some ranges that match an expression."""
    return {chunk_id for place in ranges for chunk_id in matching_chunks(connection, match, place)}


def matching_any(
    connection: Connection, words: Sequence[str], ranges: Iterable[ChunkRange]
) -> set[int]:
    """The chunks of some ranges that have any of some words."""
    found: set[int] = set()
    for some in slices(words, WORDS_AT_ONCE):
        found |= matching(connection, " OR ".join(map(quote, some)), ranges)
    return found


def bodies(
    connection: Connection, chunk_ids: Iterable[int]
) -> Iterator[tuple[int, int, str, str, str, str, str]]:
    """Of each chunk: its id and its document's, title, headings, lead, other names and text."""
    for ids in slices(sorted(chunk_ids), CHUNKS_AT_ONCE):
        for *known, metadata, body in connection.tuples("chunk_bodies", chunk_ids=json.dumps(ids)):
            chunk_id, document_id, title, heading, lead = known
            names = names_of(json.loads(metadata)) if metadata != "{}" else ""
            yield chunk_id, document_id, title, heading, lead, names, body


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
