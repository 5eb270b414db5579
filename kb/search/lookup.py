"""Words of a query looked up: how many passages hold each, and which of the candidates do.

Words that very many hold tell so little that they are passed over, so that a look-up's cost is
bounded. Going through the passages that hold a word takes .05 us each, a bm25 score .8 us.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from kb.search.query import Operand, Query, quote, says_little
from kb.search.ranking import COLUMN_WEIGHTS, LEAST_IDF, SATURATION
from kb.search.word_counts import (
    about_holding,
    count_holding,
    count_within,
    file_sizes,
    most_holding,
    most_ranked,
)
from kb.store.chunks import count_chunks_of
from kb.store.connection import Connection
from kb.store.ids import ChunkRange, range_around
from kb.text.terms import bigrams, is_unspaced, pictographs, runs, words

# Passages that the rarest words find. Commoner words only add to the scores of these, where they
# are enough: next to none of the best hundred has no rare one (decision 22).
MOST_FOUND = 2_000
MOST_FOUND_SHARE = 0.005
MOST_FOUND_IN_PART = 500  # where each takes five times as long
MOST_OFTEN = 2.1  # of bm25 without its idf, which stays below 2.2 however often a word comes
MOST_SIBLINGS = 20_000  # passages of the candidates' documents that are looked at
MOST_UNITS = 100
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Unit(NamedTuple):
    """What one word of a query looks for, as MATCH expressions.

    Attributes:
        match: the word, or a name of several such as `wind_speed_max`, as it was typed.
        parts: a name's words by themselves.
        near: words of the file that are taken for a misspelt one.
    """

    match: str
    parts: tuple[str, ...] = ()
    near: tuple[str, ...] = ()

    @property
    def is_stop_word(self) -> bool:
        return says_little(self.match.strip('"*'))


class Holding(NamedTuple):
    """In how many rows an expression is, and in which of those asked about."""

    total: int
    rows: frozenset[int]
    is_common: bool


class LookedUp(NamedTuple):
    """What one file's index says of the words of a query.

    Attributes:
        ranked: the MATCH expressions that a bm25 score is made of.
        total: the rows of the index; `documents`: whose passages they are.
        scores: of each of `ranked` that is not common, what it adds to the bm25 score of a row.
        lengths: of the documents that were looked at, in passages.
        often: how often, about, each document holds each of `ranked` that is not common.
    """

    wanted: Sequence[Unit] = ()
    ranked: Sequence[str] = ()
    found: Mapping[str, Holding] = NOTHING
    total: int = 0
    documents: int = 0
    scores: Mapping[str, Mapping[int, float]] = NOTHING
    lengths: Mapping[int, int] = NOTHING
    often: Mapping[str, Mapping[int, float]] = NOTHING


def units(query: Query, prefixes: Mapping[str, str] | None = None) -> list[Unit]:
    """What a query looks for, each once; stop words only where there is nothing else.

    Args:
        prefixes: for the text of a prefix the MATCH expression of the words that begin so.
    """
    guessed = {word for _, likely in query.guesses for word in likely}
    near = {text: tuple(map(quote, likely)) for text, likely in query.guesses}
    terms = [one for one in query.terms if one.text not in guessed]
    telling = [one for one in terms if not one.is_stop_word]
    found: dict[str, Unit] = {}
    for operand in (*query.must, *(telling or terms)):
        if operand.is_prefix and operand.text in (prefixes or {}):
            made: Sequence[Unit] = [Unit((prefixes or {})[operand.text])]
        else:
            made = _units_of(operand, near.get(operand.text, ()))
        for unit in made:
            found.setdefault(unit.match, unit)
    return list(found.values())[:MOST_UNITS]


def look_up(
    connection: Connection,
    wanted: Sequence[Unit],
    ranked: Sequence[str],
    document_of: Mapping[int, int],
    whole: Collection[int],
) -> LookedUp:
    """In how many passages the words of a query stand, in which of some and of their documents'.

    Args:
        document_of: the documents of the passages that are asked about.
        whole: those of them all of whose passages are looked at.
    """
    if not wanted:
        return LookedUp()
    total, documents = file_sizes(connection)
    most = most_holding(total)
    matches = list(dict.fromkeys((*_matches(wanted), *ranked)))
    about = about_holding(connection, matches, most)
    counts = {match: min(count, most) for match, count in about.items()}
    common = {match for match in matches if counts[match] >= most}
    if common.issuperset(unit.match for unit in wanted):
        least = [match for match in _matches(wanted) if match in ranked] or _matches(wanted)
        counts |= about_holding(connection, least, total)
        many = [match for match in least if counts[match] > most_ranked(total)]
        counts |= count_holding(connection, many, total)  # what these tell depends on it much
        common.difference_update(least)
    rarer = [match for match in dict.fromkeys(ranked) if match not in common]
    idf = {match: fts5_idf(counts[match], total) for match in rarer or dict.fromkeys(ranked)}
    scores, often = _scores(connection, idf, document_of, whole)
    others = [match for match in matches if match not in common and match not in scores]
    rows: dict[str, Iterable[int]] = {**_rows_holding(connection, others, document_of)}
    rows |= {match: scores[match] for match in rarer}
    found = {
        match: Holding(counts[match], frozenset(rows.get(match, ())), match in common)
        for match in matches
    }
    lengths = count_chunks_of(connection, whole)
    return LookedUp(wanted, ranked, found, total, documents, scores, lengths, often)


def finding_and_following(
    connection: Connection, matches: Sequence[str], part: Sequence[ChunkRange] = ()
) -> tuple[list[str], list[str]]:
    """Those of some expressions that find passages, and those that only rank what these find.

    In a large file what very many passages hold is neither: such a word takes as long as all others
    together and tells little. All are kept where no other stands in any passage.

    Args:
        part: where passages are looked for, if it is a small part of the file.

    Returns:
        Both with the rarest first.
    """
    total, _ = file_sizes(connection)
    most = most_ranked(total)
    if total <= most:
        return list(matches), []
    counts = about_holding(connection, matches, most)
    kept = sorted((one for one in matches if counts[one] < most), key=counts.__getitem__)
    if not any(counts[match] for match in kept):
        return list(matches), []
    room = max(MOST_FOUND, int(total * MOST_FOUND_SHARE))
    if part:
        counts = count_within(connection, kept, part)
        kept.sort(key=counts.__getitem__)
        room = MOST_FOUND_IN_PART
    finding: list[str] = []
    found = 0
    for match in kept:
        if found + counts[match] > room:
            break
        finding.append(match)
        found += counts[match]
    return finding, kept[len(finding) :]


def rows_titled(
    connection: Connection, wanted: Sequence[Unit], chunk_ids: Collection[int]
) -> set[int]:
    """Of some passages, those whose title and headings hold all that a query looks for."""
    matches = [f"{{title heading}} : ({unit.match})" for unit in wanted]
    found = _rows_holding(connection, matches, chunk_ids)
    return set.intersection(*found.values()) if found else set()


def _matches(wanted: Iterable[Unit]) -> list[str]:
    return [match for unit in wanted for match in (unit.match, *unit.parts, *unit.near)]


def _rows_holding(
    connection: Connection, matches: Iterable[str], chunk_ids: Collection[int]
) -> dict[str, set[int]]:
    """Of some chunks, those that hold each expression."""
    rows = connection.tuples("chunks_holding", **_listed(matches, chunk_ids))
    found: dict[str, set[int]] = {match: set() for match in matches}
    for match, chunk_id in rows:
        found[match].add(chunk_id)
    return found


def _scores(
    connection: Connection,
    idf: Mapping[str, float],
    document_of: Mapping[int, int],
    whole: Collection[int],
) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]]]:
    """What expressions add to bm25 scores of some chunks, and how often some documents hold them.

    How often is told about: what a passage's bm25 is of the expression's idf says how often it
    stands there, in a passage of mean length, and their budget makes most passages alike.

    Args:
        idf: of each expression.
        document_of: the chunks, each with its document.
        whole: documents all of whose passages are looked at.
    """
    scores: dict[str, dict[int, float]] = {match: {} for match in idf}
    often: dict[str, dict[int, float]] = {match: {} for match in idf}
    first, last = range_around([*document_of, *whole])
    rows = connection.tuples(
        "chunk_scores",
        matches=json.dumps([*idf]),
        chunk_ids=json.dumps([*document_of]),
        document_ids=json.dumps(sorted(whole)),
        most=MOST_SIBLINGS,
        first=first,
        last=last,
        **COLUMN_WEIGHTS,
    )
    for match, chunk_id, document_id, score in rows:
        if chunk_id in document_of:
            scores[match][chunk_id] = -score
        if document_id in whole:
            share = min(-score / idf[match], MOST_OFTEN)
            count = SATURATION * share / (SATURATION + 1 - share)
            often[match][document_id] = often[match].get(document_id, 0.0) + count
    return scores, often


def _listed(matches: Iterable[str], chunk_ids: Collection[int]) -> dict[str, Any]:
    """Parameters; the ids' bounds spare a search in a part of the file the rest of it."""
    return {
        "matches": json.dumps(list(dict.fromkeys(matches))),
        "chunk_ids": json.dumps(list(chunk_ids)),
        "first": min(chunk_ids, default=0),
        "last": max(chunk_ids, default=0),
    }


@lru_cache(maxsize=1024)
def _units_of(operand: Operand, near: tuple[str, ...]) -> Sequence[Unit]:
    """The units of one word or phrase; several files are asked the same."""
    normal = unicodedata.normalize("NFKC", operand.text)
    found = words(normal)
    if not found:
        return [Unit(quote(term)) for term in pictographs(normal)]
    if not any(map(is_unspaced, found)):
        parts = tuple(map(quote, found)) if len(found) > 1 else ()
        return [Unit(quote(normal) + ("*" if operand.is_prefix else ""), parts, near)]
    made: list[Unit] = []
    for run in (run for word in found for run in runs(word)):
        if not is_unspaced(run):
            made.append(Unit(quote(run)))
        elif len(run) == 1:
            made.append(Unit(quote(run) + "*"))
        else:
            made += [Unit(quote(pair)) for pair in bigrams(run)]
    return made


def fts5_idf(count: int, total: int) -> float:
    ratio = (total - count + 0.5) / (count + 0.5)
    return max(math.log(ratio), LEAST_IDF) if ratio > 0 else LEAST_IDF
