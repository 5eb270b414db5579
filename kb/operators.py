"""Which chunks and documents hold an operand, exactly.

The keyword index proposes, the text decides. Its terms are stems, so a phrase, a prefix or a word
in quotes is looked up there as widely as needed and then compared with the words of the text:

- A bare word matches by its stem, as the index has it; no check is needed.
- A bare operand of several words (`+state-of-the-art`) is those stems in a row.
- A phrase is exactly those words in a row, in a title, a heading or the text. It may reach from
  one chunk into the next.
- A prefix is the beginning of a word as written: porter's stem of `relational` is `relat`, which
  `relatio*` must find all the same.

See docs/decisions for what that costs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple, TypeVar

from kb.database import Connection
from kb.fuzzy import prefix_bounds, prefixed
from kb.query import Operand, Query, quote
from kb.terms import bigrams
from kb.tokens import (
    Pattern,
    find,
    holds,
    holds_prefix,
    pattern,
    split_for,
    starts_with,
    unspaced_runs,
    without_first,
)

IdRange = tuple[int, int]  # of chunks or of documents: a collection's ids are one range

HEADING_SEPARATOR = " > "
WORDS_AT_ONCE = 500  # alternatives of one MATCH expression
MOST_PREFIX_WORDS = 1000  # that take part in a ranking
CHUNKS_AT_ONCE = 1000  # whose texts are held in memory

DOCUMENTS_AT_ONCE = 50

T = TypeVar("T")


class Place(NamedTuple):
    """Where a chunk lies in its document's text, in characters."""

    chunk_id: int
    start: int
    end: int


def chunk_filters(
    connection: Connection, query: Query, ranges: Sequence[IdRange]
) -> tuple[set[int] | None, set[int] | None]:
    """The only chunks that may be found, or else the chunks that may not; None: no such limit.

    A passage is judged with its title and its headings.
    """
    return _filters(query, lambda operand: chunks_holding(connection, operand, ranges))


def document_filters(
    connection: Connection, query: Query, ranges: Sequence[IdRange], *, case: bool = False
) -> tuple[set[int] | None, set[int] | None]:
    """As `chunk_filters` for whole documents, by their row ids; operands may lie far apart."""
    return _filters(query, lambda one: documents_holding(connection, one, ranges, case=case))


def documents_holding(
    connection: Connection, operand: Operand, ranges: Sequence[IdRange], *, case: bool = False
) -> set[int]:
    """The documents that hold an operand in their title or text, all of them and no other.

    Args:
        ranges: of document ids.
        case: upper and lower case must agree; then words are not stemmed either.
    """
    wanted = pattern(connection, operand, case=case)
    found = _holding(connection, wanted, ranges, "matching_document_ids", _judged_documents)
    if any(len(run) > 1 for run in unspaced_runs(wanted)[0]):
        # Pairs of characters are made chunk by chunk, so that a pair across a border is missing.
        found |= set(documents_of(connection, _across_chunks(connection, wanted, ranges)).values())
    return found


def documents_of(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, int]:
    """The document of each chunk, by row ids."""
    ids = json.dumps(sorted(chunk_ids))
    return dict(connection.tuples("document_ids_of_chunks", chunk_ids=ids))


def chunks_holding(connection: Connection, operand: Operand, ranges: Sequence[IdRange]) -> set[int]:
    """The chunks that hold an operand, all of them and no other."""
    wanted = pattern(connection, operand)
    found = _holding(connection, wanted, ranges, "matching_chunk_ids", _judged_chunks)
    if len(wanted.words) > 1:
        found |= _across_chunks(connection, wanted, ranges)
    return found


def match_prefixes(connection: Connection, query: Query) -> list[str]:
    """FTS5 alternatives that rank what the prefixes of a query find: a word of each stem.

    Of a short prefix's words some are left out here; required ones are enforced all the same.
    """
    found: list[str] = []
    for operand in (*query.must, *query.terms):
        wanted = pattern(connection, operand)
        if wanted.is_prefix and len(wanted.words) == 1:
            word_of = {stem: word for word, stem in prefixed(connection, wanted.folded[0]).items()}
            found += [quote(word) for word in word_of.values()]
    return list(dict.fromkeys(found))[:MOST_PREFIX_WORDS]


def _filters(
    query: Query, holding: Callable[[Operand], set[int]]
) -> tuple[set[int] | None, set[int] | None]:
    only: set[int] | None = None
    for operand in query.must:
        only = holding(operand) if only is None else only & holding(operand)
    without: set[int] = set().union(*(holding(operand) for operand in query.must_not))
    if only is not None:
        return only - without, None
    return None, without or None


def _holding(
    connection: Connection,
    wanted: Pattern,
    ranges: Sequence[IdRange],
    matching: str,
    judged: Callable[[Connection, set[int], Pattern], set[int]],
) -> set[int]:
    """The ids that a statement finds as candidates and that pass judgement."""
    if not wanted.words:
        return set()
    if len(wanted.words) == 1 and wanted.is_prefix and not unspaced_runs(wanted)[0]:
        sure, doubtful = _words_with_prefix(connection, wanted)
        found = _matching_any(connection, matching, sure, ranges)
        rest = _matching_any(connection, matching, doubtful, ranges) - found
        return found | judged(connection, rest, wanted)
    candidates = _matching(connection, matching, _match_words(wanted), ranges)
    return candidates if wanted.is_plain_word else judged(connection, candidates, wanted)


# ---------------------------------------------------------------------- candidates


def _match_words(wanted: Pattern) -> str:
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


def _words_with_prefix(connection: Connection, wanted: Pattern) -> tuple[list[str], list[str]]:
    """A word of each stem that words with a prefix have.

    First those whose stem no other word has, then those whose stem proves nothing: what they find
    must be checked.
    """
    prefix = wanted.folded[0]
    # The index stems what it is asked for, so it is asked for a word of each stem.
    word_of = {stem: word for word, stem in prefixed(connection, prefix).items()}
    if wanted.case:
        return [], list(word_of.values())
    shared = {
        row[0]
        for row in connection.tuples(
            "stems_of_other_words", stems=json.dumps(list(word_of)), **prefix_bounds(prefix)
        )
    }
    return (
        [word for stem, word in word_of.items() if stem not in shared],
        [word for stem, word in word_of.items() if stem in shared],
    )


def _matching(
    connection: Connection, statement: str, match: str, ranges: Iterable[IdRange]
) -> set[int]:
    return {
        row[0]
        for first, last in ranges
        for row in connection.tuples(statement, match=match, first=first, last=last)
    }


def _matching_any(
    connection: Connection, statement: str, words: Sequence[str], ranges: Iterable[IdRange]
) -> set[int]:
    found: set[int] = set()
    for some in _slices(words, WORDS_AT_ONCE):
        found |= _matching(connection, statement, " OR ".join(map(quote, some)), ranges)
    return found


# ---------------------------------------------------------------------- verification


def _judged_chunks(connection: Connection, candidates: set[int], wanted: Pattern) -> set[int]:
    """Of some chunks, those that hold a pattern in their title, a heading or their own text."""

    # Titles and headings are few and come often.
    holds_name = cache(lambda text: _holds(connection, text, wanted))

    found: set[int] = set()
    for chunk_id, _, title, heading, body in _bodies(connection, candidates):
        if (
            holds_name(title)
            or any(map(holds_name, heading.split(HEADING_SEPARATOR)))
            or _holds(connection, body, wanted)
        ):
            found.add(chunk_id)
    return found


def _judged_documents(connection: Connection, candidates: set[int], wanted: Pattern) -> set[int]:
    """Of some documents, those that hold a pattern in their title or text."""
    found: set[int] = set()
    for ids in _slices(sorted(candidates), DOCUMENTS_AT_ONCE):
        for row in connection.rows("document_contents", document_ids=json.dumps(ids)):
            texts = (row["title"], row["content"])
            if any(_holds(connection, text, wanted) for text in texts):
                found.add(row["document_id"])
    return found


def _holds(connection: Connection, text: str, wanted: Pattern) -> bool:
    if wanted.is_prefix and len(wanted.words) == 1:
        return holds_prefix(connection, text, wanted)
    return holds(connection, text, wanted)


def _across_chunks(connection: Connection, wanted: Pattern, ranges: Sequence[IdRange]) -> set[int]:
    """The chunks that a phrase overlaps which begins in one chunk and ends in another.

    The last chunk of such a place begins with the rest of the phrase, which the keyword index
    finds directly ("^"); what comes before it is then read in the document.
    """
    ends: set[int] = set()
    for first in range(1, len(wanted.words)):
        rest = without_first(wanted, first)
        unspaced, others = unspaced_runs(rest)
        if unspaced or rest.has_pictographs:
            match = _match_words(rest)
        else:
            in_a_row = quote(" ".join(others)) + ("*" if rest.is_prefix else "")
            each = [quote(word) for word in others]
            match = f"(body : ^ {in_a_row}) OR (extra : ({' OR '.join(each)}))"
        for chunk_id, _, _, _, body in _bodies(
            connection, _matching(connection, "matching_chunk_ids", match, ranges)
        ):
            if starts_with(connection, body, rest):
                ends.add(chunk_id)
    found: set[int] = set()
    document_ids = sorted(set(documents_of(connection, ends).values()))
    for ids in _slices(document_ids, DOCUMENTS_AT_ONCE):
        listed = json.dumps(ids)
        places = {
            document_id: [Place(*row[1:]) for row in rows]
            for document_id, rows in groupby(
                connection.tuples("chunk_places", document_ids=listed), key=lambda row: row[0]
            )
        }
        for row in connection.rows("document_contents", document_ids=listed):
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


def _bodies(
    connection: Connection, chunk_ids: Iterable[int]
) -> Iterator[tuple[int, int, str, str, str]]:
    for ids in _slices(sorted(chunk_ids), CHUNKS_AT_ONCE):
        yield from connection.tuples("chunk_bodies", chunk_ids=json.dumps(ids))


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
