"""Which chunks and documents hold an operand, exactly.

The keyword index proposes, the text decides. Its terms are stems, so a phrase, a prefix or a word
in quotes is looked up there as widely as needed and then compared with the words of the text:

- A bare word matches by its stem, as the index has it; no check is needed.
- A bare operand of several words (`+state-of-the-art`) is those stems in a row.
- A phrase is exactly those words in a row, in a title, a heading or the text. It may reach from
  one chunk into the next.
- A prefix is the beginning of a word as written: porter's stem of `relational` is `relat`, which
  `relatio*` must find all the same.

See docs/decisions/0004-operators-typos-indexes.md for what that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from kb.search.borders import across_chunks
from kb.search.candidates import (
    bodies,
    match_words_of,
    matching,
    matching_any,
    word_of_each_stem,
    words_with_prefix,
)
from kb.search.query import TAG, Operand, Query, quote
from kb.search.words import Pattern, holds, holds_prefix, pattern, unspaced_runs
from kb.store.chunks import documents_of_chunks
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.text.headings import PATH_SEPARATOR
from kb.text.nearest import nearest

MOST_PREFIX_WORDS = 500  # that take part in a ranking
MOST_TAGS_NAMED = 10
NO_SUCH_PHRASE = "No passage holds the quoted words in a row: searched without the quotes."

Filters = tuple[set[int] | None, set[int] | None]  # only these ids, or all but these


def chunk_filters(connection: Connection, query: Query, ranges: Sequence[ChunkRange]) -> Filters:
    """The only chunks that may be found, or else the chunks that may not; None: no such limit.

    A passage is judged with its title and its headings.
    """
    only, without = _filters(query, lambda operand: chunks_holding(connection, operand, ranges))
    for tag in query.tags:
        tagged = chunks_tagged(connection, tag, ranges)
        only = tagged if only is None else only & tagged
    for tag in query.tags_not:
        tagged = chunks_tagged(connection, tag, ranges)
        if only is not None:
            only = only - tagged
        else:
            without = (without or set()) | tagged
    if only is not None and without:
        return only - without, None
    return only, without


def enforced(
    connection: Connection, query: Query, ranges: Sequence[ChunkRange]
) -> tuple[Query, Filters, str]:
    """A query with its `chunk_filters`, and what to tell the reader.

    A text with quotes in it was often pasted: where no passage holds the quoted words, they are
    searched without the quotes. What `+` and `-` say stays, and so do tags.
    """
    for tag in query.tags:
        if not chunks_tagged(connection, tag, ranges):
            return query, (set(), None), _no_such_tag(connection, tag, ranges)
    filters = chunk_filters(connection, query, ranges)
    if filters[0] != set() or not query.is_quoted:
        return query, filters, ""
    query = query.without_quotes()
    return query, chunk_filters(connection, query, ranges), NO_SUCH_PHRASE


def document_filters(
    connection: Connection, query: Query, ranges: Sequence[ChunkRange], *, case: bool = False
) -> Filters:
    """As `chunk_filters` for whole documents, by their row ids; operands may lie far apart."""
    return _filters(query, lambda one: documents_holding(connection, one, ranges, case=case))


def documents_holding(
    connection: Connection, operand: Operand, ranges: Sequence[ChunkRange], *, case: bool = False
) -> set[int]:
    """The documents that hold an operand in their title or text, all of them and no other.

    Args:
        case: upper and lower case must agree; then words are not stemmed either.
    """
    chunk_ids = chunks_holding(connection, operand, ranges, case=case)
    return set(documents_of_chunks(connection, chunk_ids).values())


def matching_documents(
    connection: Connection, match: str, ranges: Sequence[ChunkRange]
) -> set[int]:
    """The documents of some ranges that match an expression in one of their chunks."""
    return set(documents_of_chunks(connection, matching(connection, match, ranges)).values())


def chunks_holding(
    connection: Connection, operand: Operand, ranges: Sequence[ChunkRange], *, case: bool = False
) -> set[int]:
    """The chunks that hold an operand, all of them and no other; `case`: as it is written."""
    wanted = pattern(connection, operand, case=case)
    found = _holding(connection, wanted, ranges)
    if len(wanted.words) > 1:
        found |= across_chunks(connection, wanted, ranges)
    return found


def chunks_tagged(connection: Connection, tag: str, ranges: Sequence[ChunkRange]) -> set[int]:
    """The chunks of the documents that have a tag, or one below it: `a` has `a/b`."""
    bounds = {
        "tag": TAG + tag,
        "below": f"{TAG}{tag}/",
        "behind": f"{TAG}{tag}0",
    }  # "0" follows "/"
    return {
        row[0]
        for first, last in ranges
        for row in connection.tuples("chunk_ids_tagged", first=first, last=last, **bounds)
    }


def _no_such_tag(connection: Connection, tag: str, ranges: Sequence[ChunkRange]) -> str:
    known = [
        row[0].removeprefix(TAG)
        for first, last in ranges
        for row in connection.tuples("known_tags", first=first, last=last)
    ]
    near = nearest(tag, known) or known[:MOST_TAGS_NAMED]
    there_are = f": there are {', '.join(near)}" if near else ""
    return f'No document has the tag "{tag}"{there_are}.'


def match_prefixes(connection: Connection, query: Query) -> dict[str, str]:
    """For each prefix of a query, by its text, the MATCH expression of a word of each stem.

    Of a short prefix's words some are left out here; required ones are enforced all the same.
    """
    found: dict[str, str] = {}
    for operand in (*query.must, *query.terms):
        if not operand.is_prefix:
            continue
        wanted = pattern(connection, operand)
        if len(wanted.words) == 1:
            words = list(word_of_each_stem(connection, wanted.folded[0]).values())
            if words:
                found[operand.text] = " OR ".join(map(quote, words[:MOST_PREFIX_WORDS]))
    return found


def _filters(query: Query, holding: Callable[[Operand], set[int]]) -> Filters:
    only: set[int] | None = None
    for operand in query.must:
        only = holding(operand) if only is None else only & holding(operand)
        if not only:
            return only, None
    without: set[int] = set().union(*(holding(operand) for operand in query.must_not))
    if only is not None:
        return only - without, None
    return None, without or None


def _holding(
    connection: Connection,
    wanted: Pattern,
    ranges: Sequence[ChunkRange],
) -> set[int]:
    """The chunks that the index proposes and that pass judgement."""
    if not wanted.words:
        return set()
    if len(wanted.words) == 1 and wanted.is_prefix and not unspaced_runs(wanted)[0]:
        sure, doubtful = words_with_prefix(connection, wanted)
        found = matching_any(connection, sure, ranges)
        rest = matching_any(connection, doubtful, ranges) - found
        return found | _judged(connection, rest, wanted)
    candidates = matching(connection, match_words_of(wanted), ranges)
    return candidates if wanted.is_plain_word else _judged(connection, candidates, wanted)


def _judged(connection: Connection, candidates: set[int], wanted: Pattern) -> set[int]:
    """Of some chunks, those that hold a pattern in their title, names, a heading, lead or text."""

    # Titles, names, headings and leads are few and come often.
    holds_name = cache(lambda text: _holds(connection, text, wanted))

    found: set[int] = set()
    for chunk_id, _, title, heading, lead, names, body in bodies(connection, candidates):
        if (
            holds_name(title)
            or holds_name(lead)
            or any(map(holds_name, names.splitlines()))
            or any(map(holds_name, heading.split(PATH_SEPARATOR)))
            or _holds(connection, body, wanted)
        ):
            found.add(chunk_id)
    return found


def _holds(connection: Connection, text: str, wanted: Pattern) -> bool:
    if wanted.is_prefix and len(wanted.words) == 1:
        return holds_prefix(connection, text, wanted)
    return holds(connection, text, wanted)
