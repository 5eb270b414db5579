"""The lists that the keyword index gives for a query."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kb.search.candidates import bodies
from kb.search.in_a_row import holding_in_a_row
from kb.search.known_scores import Known, known_words
from kb.search.lookup import Unit, finding_and_following, units
from kb.search.operators import match_prefixes
from kb.search.query import Query, match_alternatives, match_literally
from kb.search.ranking import COLUMN_WEIGHTS
from kb.search.word_counts import is_small_part
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

DEPTH = 300  # rows of a list whose scores are known; 1,000 ranked no better
KNOWN_PER_CANDIDATE = 3  # of a file that gives its share: twice as many bring .001 nDCG@10
LITERAL_DEPTH = 50
MOST_BY_KNOWN = 2_000  # passages of a part of the file; of more bm25() takes less
TYPED_DEPTH = 300  # of these those are looked for that hold what was typed with its signs
_IN_NAME = re.compile(r"[\w-]")
NO_NAME_BEFORE, NO_NAME_BEHIND = r"(?<![\w-])", r"(?![\w-])"


class WordLists(NamedTuple):
    """What the keyword index says: scores by id, best first, and what they are made of.

    Attributes:
        literal: chunks with the query's words in a row; `typed`: those with its very characters.
    """

    alternatives: list[str]
    units: list[Unit]
    chunks: dict[int, float]
    literal: list[int]
    typed: set[int]


def word_lists(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    depth: int,
    only: set[int] | None,
    without: set[int] | None,
) -> WordLists:
    """What the index says of a query, in ids that its operators let pass."""
    prefixes = match_prefixes(connection, query)
    alternatives = [*match_alternatives(query), *prefixes.values()]
    is_free = only is None and not without
    part = ranges if is_free and is_small_part(connection, ranges) else ()
    finding, following = finding_and_following(connection, alternatives, part)
    known = known_words(connection, [*finding, *following], part) if part else {}
    most = max(min(DEPTH, KNOWN_PER_CANDIDATE * depth), depth)
    scores = dict(
        word_hits(
            connection,
            finding,
            following,
            ranges,
            most,
            enough=depth,
            known=known,
            only=only,
            without=without,
        )
    )
    literal, typed = literal_hits(connection, query, ranges, scores, only, without)
    units_ = units(query, prefixes)
    return WordLists([*finding, *following], units_, scores, literal, typed)


def word_hits(
    connection: Connection,
    finding: Sequence[str],
    following: Sequence[str],
    ranges: Sequence[ChunkRange],
    depth: int,
    *,
    enough: int = 0,
    known: Mapping[str, Known] = MappingProxyType({}),
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> list[tuple[int, float]]:
    """As `keyword_hits` for any of some expressions, without scoring all that hold common ones.

    Args:
        finding: what passages are found by.
        following: what only adds to the scores of these, the rarest first. Until there are `depth`
            passages they are found by two of these as well.
        enough: if there are fewer then, they are found by any; by default `depth`.
        known: of all of them, where that spares time.
    """

    def hits(match: str, words: Sequence[str], leading: Sequence[str]) -> dict[int, float]:
        """By an expression of some words in this order, of which some find the passages."""
        if known and sum(known[word].passages for word in leading) <= MOST_BY_KNOWN:
            idf = json.dumps([known[word].idf for word in words])
            name = "keyword_hits_by_known_words"
            return dict(_index_hits(connection, name, match, ranges, depth, idf=idf))
        return dict(keyword_hits(connection, match, ranges, depth, only=only, without=without))

    either, others = " OR ".join(finding), " OR ".join(following)
    scores = hits(either, finding, finding)
    if finding and following:
        # A passage in both lists has its whole score in the second one.
        scores |= hits(f"({others}) AND ({either})", [*following, *finding], finding)
    for number, match in enumerate(following[:-1], 1):
        if len(scores) >= depth:
            break
        rest = " OR ".join(following[number:])
        # What is found already has its whole score.
        scores = hits(f"({match}) AND ({rest})", following[number - 1 :], [match]) | scores
    if following and len(scores) < (enough or depth):
        every = [*finding, *following]
        scores = hits(" OR ".join(every), every, every)
    return sorted(scores.items(), key=lambda row: (-row[1], row[0]))[:depth]


def keyword_hits(
    connection: Connection,
    match: str,
    ranges: Iterable[ChunkRange],
    depth: int,
    *,
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> list[tuple[int, float]]:
    """Chunk ids with their bm25 score (positive, higher is better), best first.

    Args:
        only: no other chunk is considered; `without`: these are not.
    """
    if only is not None:
        listed = json.dumps(sorted(only))
        return _index_hits(connection, "keyword_hits_among", match, ranges, depth, chunk_ids=listed)
    if without:
        listed = json.dumps(sorted(without))
        return _index_hits(
            connection, "keyword_hits_except", match, ranges, depth, chunk_ids=listed
        )
    return _index_hits(connection, "keyword_hits", match, ranges, depth)


def literal_hits(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    scores: Mapping[int, float],
    only: set[int] | None = None,
    without: set[int] | None = None,
) -> tuple[list[int], set[int]]:
    """Passages that hold the query's very words in a row, and those with its very characters.

    Somebody who types an error message or the name of an option wants its occurrence first. The
    words of an option may be everywhere (`--all`), so that more passages are looked at for it.

    Args:
        scores: of the best passages by the query's words; these come first.
    """
    if not match_literally(query):
        return [], set()
    as_typed = _as_typed(query)
    depth = LITERAL_DEPTH if as_typed is None else TYPED_DEPTH
    chunk_ids = sorted(holding_in_a_row(connection, query.text, ranges))
    if only is not None or without:
        chunk_ids = [
            one for one in chunk_ids if (only is None or one in only) and one not in (without or ())
        ]
    # FTS5 would look for the words in a row twice to score them, to count them first.
    chunk_ids.sort(key=lambda chunk_id: -scores.get(chunk_id, 0.0))
    del chunk_ids[depth:]
    if as_typed is None:
        return chunk_ids, set()
    typed = {
        chunk_id
        for chunk_id, _, *texts in bodies(connection, chunk_ids)
        if any(as_typed.search(" ".join(one.split()).casefold()) for one in texts)
    }
    first = [chunk_id for chunk_id in chunk_ids if chunk_id in typed]
    others = [chunk_id for chunk_id in chunk_ids if chunk_id not in typed]
    return [*first, *others][:LITERAL_DEPTH], typed


def _as_typed(query: Query) -> re.Pattern[str] | None:
    """What the very characters of a query are found by; None where it has no signs.

    As a part of a longer name they are another name: `foreign_server_type` is not `foreign_server`.
    """
    text = " ".join(query.text.split()).casefold()
    if text.replace(" ", "").isalnum():
        return None
    before = NO_NAME_BEFORE if _IN_NAME.match(text[0]) else ""
    behind = NO_NAME_BEHIND if _IN_NAME.match(text[-1]) else ""
    return re.compile(before + re.escape(text) + behind)


def _index_hits(
    connection: Connection,
    statement: str,
    match: str,
    ranges: Iterable[ChunkRange],
    depth: int,
    **parameters: Any,
) -> list[tuple[int, float]]:
    if not match:
        return []
    parameters |= {"match": match, "limit": depth, **COLUMN_WEIGHTS}
    found: list[tuple[int, float]] = []
    for first, last in ranges:
        found += connection.tuples(statement, first=first, last=last, **parameters)
    found.sort(key=lambda row: (row[1], row[0]))
    return [(row_id, -score) for row_id, score in found[:depth]]
