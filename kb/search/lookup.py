"""Words of a query looked up: how many passages hold each, and which of the candidates do.

Every word is looked up once for both. Words that very many hold tell so little that they are passed
over, so that a look-up's cost is bounded.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.search.query import STOP_WORDS, Operand, Query, quote
from kb.search.ranking import COLUMN_WEIGHTS, LEAST_IDF, SATURATION
from kb.store.chunks import passages_of_documents
from kb.store.connection import Connection
from kb.text.terms import bigrams, is_unspaced, pictographs, runs, words

MOST_HOLDING = 2_000  # rows: a word in more of them, and in more than this share, is passed over
MOST_HOLDING_SHARE = 0.02
# Passages: a word in more of them and in more than this share does not rank where another does. On
# SciFact the share alone costs .0003 nDCG@10, a share of 0.05 .006; among 91,000 passages it takes
# the keyword list from 14 to 7 ms.
MOST_RANKED = 5_000
MOST_RANKED_SHARE = 0.1
UNLIMITED = -1
MOST_OFTEN = 2.1  # of bm25 without its idf, which stays below 2.2 however often a word comes
MOST_SIBLINGS = 20_000  # passages of the candidates' documents that are looked at
MOST_UNITS = 100
SIZES = "passages and documents"


@dataclass(frozen=True, slots=True)
class Unit:
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
        return self.match.strip('"').casefold() in STOP_WORDS


@dataclass(frozen=True, slots=True)
class Holding:
    """In how many rows an expression is, and in which of those asked about."""

    count: int
    rows: frozenset[int]
    is_common: bool


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What one file's index says of the words of a query.

    Attributes:
        ranked: the MATCH expressions that a bm25 score is made of.
        total: the rows of the index.
        lengths: of the documents that were asked about, in passages, as multiples of the mean.
        often: how often, about, each document holds each of `ranked` that is not common.
    """

    wanted: Sequence[Unit] = ()
    ranked: Sequence[str] = ()
    found: Mapping[str, Holding] = field(default_factory=dict)
    total: int = 0
    lengths: Mapping[int, float] = field(default_factory=dict)
    often: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


def units(query: Query, prefixes: Mapping[str, str] | None = None) -> list[Unit]:
    """What a query looks for, each once; stop words only where there is nothing else.

    Args:
        prefixes: for the text of a prefix the MATCH expression of the words that begin so.
    """
    guessed = {word for _, likely in query.guesses for word in likely}
    near = {text: tuple(map(quote, likely)) for text, likely in query.guesses}
    terms = [one for one in query.terms if one.text not in guessed]
    telling = [one for one in terms if one.text.casefold() not in STOP_WORDS]
    found: dict[str, Unit] = {}
    for operand in (*query.must, *(telling or terms)):
        if operand.is_prefix and operand.text in (prefixes or {}):
            made = [Unit((prefixes or {})[operand.text])]
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
    counted: Mapping[str, int] | None = None,
) -> LookedUp:
    """In how many passages the words of a query stand, in which of some and of their documents'.

    Args:
        document_of: the documents of the passages that are asked about.
        counted: what `telling` knows.
    """
    if not wanted:
        return LookedUp()
    total, documents = file_sizes(connection)
    most = max(MOST_HOLDING, int(total * MOST_HOLDING_SHARE))
    found = {
        match: Holding(most, frozenset(), True)
        for match, count in (counted or {}).items()
        if count >= most
    }
    unknown = [match for match in (*_matches(wanted), *ranked) if match not in found]
    found |= _look_up(connection, unknown, document_of, most)
    if all(found[unit.match].is_common for unit in wanted):
        found |= _look_up(connection, _matches(wanted), document_of, total)
        for unit in wanted:
            found[unit.match] = replace(found[unit.match], is_common=False)
    siblings = passages_of_documents(connection, set(document_of.values()), MOST_SIBLINGS)
    siblings |= document_of
    rarer = [match for match in dict.fromkeys(ranked) if not found[match].is_common]
    counts = {match: found[match].count for match in rarer or dict.fromkeys(ranked)}
    often = _often(connection, counts, siblings, total)
    mean = total / max(1, documents)
    lengths = {one: count / mean for one, count in Counter(siblings.values()).items()}
    return LookedUp(wanted, ranked, found, total, lengths, often)


def telling(connection: Connection, matches: Sequence[str]) -> tuple[list[str], Mapping[str, int]]:
    """Those of some expressions that rank: in a large file not what very many passages hold.

    Also how many passages hold each, in a large file, where it had to be counted.

    Such a word takes as long as all others together and tells little. All stay where no other
    stands in any passage.
    """
    total, _ = file_sizes(connection)
    most = max(MOST_RANKED, int(total * MOST_RANKED_SHARE))
    if total <= most:
        return list(matches), {}
    found = _look_up(connection, matches, (), most)
    kept = [match for match in matches if not found[match].is_common]
    counted = {match: one.count for match, one in found.items()}
    return kept if any(counted[match] for match in kept) else list(matches), counted


def rows_titled(
    connection: Connection, wanted: Sequence[Unit], chunk_ids: Collection[int]
) -> set[int]:
    """Of some passages, those whose title and headings hold all that a query looks for."""
    matches = [f"{{title heading}} : ({unit.match})" for unit in wanted]
    found = _look_up(connection, matches, chunk_ids, UNLIMITED)
    return set.intersection(*(set(one.rows) for one in found.values())) if found else set()


def file_sizes(connection: Connection) -> tuple[int, int]:
    """How many passages and documents the file holds: at a million 5 ms, once until it changes."""
    if (kept := connection.kept(SIZES)) is None:
        kept = connection.value("count_all_chunks"), connection.value("count_all_documents")
        connection.keep(SIZES, kept)
    sizes: tuple[int, int] = kept
    return sizes


def _matches(wanted: Iterable[Unit]) -> list[str]:
    return [match for unit in wanted for match in (unit.match, *unit.parts, *unit.near)]


def _look_up(
    connection: Connection,
    matches: Iterable[str],
    row_ids: Collection[int],
    most: int,
) -> dict[str, Holding]:
    """Each expression's rows, the first `most` of them."""
    rows = connection.tuples(
        "chunks_holding",
        matches=json.dumps(list(dict.fromkeys(matches))),
        row_ids=json.dumps(list(row_ids)),
        limit=most,
    )
    found: dict[str, Holding] = {}
    for match, counted in rows:
        count, held = json.loads(counted)
        found[match] = Holding(count, frozenset(held), count >= most)
    return found


def _often(
    connection: Connection, counts: Mapping[str, int], siblings: Mapping[int, int], total: int
) -> dict[str, dict[int, float]]:
    """How often, about, documents hold some expressions.

    What a passage's bm25 is of the expression's idf says how often it stands there, in a passage of
    mean length: their budget makes most passages alike.

    Args:
        counts: in how many passages each expression stands.
        siblings: all passages of the documents, with their document.
    """
    often: dict[str, dict[int, float]] = {match: {} for match in counts}
    idf = {match: fts5_idf(count, total) for match, count in counts.items()}
    for match, chunk_id, score in connection.tuples(
        "chunk_scores",
        matches=json.dumps(list(counts)),
        chunk_ids=json.dumps(list(siblings)),
        **COLUMN_WEIGHTS,
    ):
        share = min(-score / idf[match], MOST_OFTEN)
        document_id, documents = siblings[chunk_id], often[match]
        count = SATURATION * share / (SATURATION + 1 - share)
        documents[document_id] = documents.get(document_id, 0.0) + count
    return often


def _units_of(operand: Operand, near: tuple[str, ...]) -> list[Unit]:
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
