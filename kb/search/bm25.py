"""Whole documents of one index, found and scored by words alone.

The score is BM25 (Robertson, Zaragoza 2009) with the index's own counts: its documents, in how
many of them a word stands, and their average length. FTS5's own bm25 counts passages of the whole
file and gives a word in more than half of them no weight, so it is not used here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from kb.search.operators import document_filters, documents_holding, matching_documents
from kb.search.query import Operand, Query, quote
from kb.search.ranking import LENGTH_WEIGHT, SATURATION, SCORE_DIGITS
from kb.search.words import Pattern, pattern, split, unspaced_runs
from kb.store.connection import Connection
from kb.store.contents import texts_of
from kb.store.ids import ChunkRange, collection_range
from kb.text.terms import bigrams, is_unspaced, parts

DOCUMENTS_AT_ONCE = 100  # whose texts are held in memory
# Of a text whose words are counted: 20 MB of Chinese are seven million words, which took 1.2 GB.
PART_CHARACTERS = 1 << 14

Counts = Mapping[int, int]  # by document


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How an index takes words."""

    lowercase: bool = True
    min_length: int = 2

    @classmethod
    def from_json(cls, text: str) -> IndexOptions:
        options = json.loads(text)
        return cls(options.get("lowercase", True), options.get("min_length", 2))

    def counts(self, word: str) -> bool:
        """Whether a word is long enough; a character of unspaced script is a word by itself."""
        return len(word) >= self.min_length or is_unspaced(word)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Everything that matches, best first: (document's row id, score)."""

    documents: list[tuple[int, float]]
    query: Query  # without words that are too short to be searched
    ignored: tuple[str, ...]  # those words


def rank_documents(
    connection: Connection, query: Query, collection_id: int, options: IndexOptions
) -> Ranking:
    """The documents of an index that match, scored; ties by document id."""
    ranges = [collection_range(collection_id)]
    query, ignored = without_short_words(connection, query, options)
    lost_must = any(operand.text in ignored for operand in query.must)
    if lost_must or query.asks_for_nothing:
        return Ranking([], query, ignored)
    case = not options.lowercase
    only, without = document_filters(connection, query, ranges, case=case)
    if only == set():
        return Ranking([], query, ignored)
    counter = _Counter(connection, ranges[0], options)
    units: dict[str, Counts] = {}
    for operand in (*query.terms, *query.must):
        units |= counter.units(operand)
    found = set().union(*units.values()) if only is None else only
    found -= without or set()
    return Ranking(_scored(connection, collection_id, units, found), query, ignored)


def without_short_words(
    connection: Connection, query: Query, options: IndexOptions
) -> tuple[Query, tuple[str, ...]]:
    """A query without the bare words and exclusions that an index holds no token for.

    A required one stays: nothing matches it.
    """

    def is_short(operand: Operand) -> bool:
        wanted = pattern(connection, operand)
        return not wanted.has_pictographs and not any(map(options.counts, wanted.folded))

    ignored = tuple(
        operand.text
        for operand in (*query.must, *query.terms, *query.must_not)
        if is_short(operand)
    )
    kept = query._replace(
        terms=tuple(one for one in query.terms if not is_short(one)),
        must_not=tuple(one for one in query.must_not if not is_short(one)),
    )
    return kept, ignored


def count_tokens(connection: Connection, text: str, options: IndexOptions) -> int:
    """How many words of a text an index takes, repeats included."""
    return sum(
        sum(map(options.counts, split(connection, part, pictographs=True).words))
        for part in parts(text, PART_CHARACTERS)
    )


class _Counter:
    """How often the documents of one index hold the words of a query."""

    def __init__(self, connection: Connection, id_range: ChunkRange, options: IndexOptions) -> None:
        self._connection = connection
        self._range = {"first": id_range[0], "last": id_range[1]}
        self._options = options

    def units(self, operand: Operand) -> dict[str, Counts]:
        """Counts by document for each word of an operand that weighs by itself."""
        wanted = pattern(self._connection, operand)
        runs, _ = unspaced_runs(wanted)
        if wanted.is_prefix and len(wanted.words) == 1 and not runs:
            ids = (self._range["first"], self._range["last"])
            case = not self._options.lowercase
            holding = documents_holding(self._connection, operand, [ids], case=case)
            return {f"{operand.text}*": dict.fromkeys(holding, 1)}
        found: dict[str, Counts] = {}
        for run in runs:
            for pair in bigrams(run):
                found[pair] = self._count_unspaced(pair)
        if self._options.lowercase:
            for word in self._words(wanted):
                stem = self._connection.tokenize(word, stem=True)[0][2]
                found[stem] = self._count_stem(stem)
        else:
            written = split(self._connection, operand.text, case=True)
            found |= self._count_as_written(
                [w for w in written.words if self._options.counts(w) and not is_unspaced(w)]
            )
        return found

    def _words(self, wanted: Pattern) -> Iterable[str]:
        return (w for w in wanted.folded if self._options.counts(w) and not is_unspaced(w))

    def _count_stem(self, stem: str) -> Counts:
        rows = self._connection.tuples("term_counts", term=stem, **self._range)
        # Extra terms repeat those of titles, so they count once.
        return {document_id: body or 1 for document_id, body, _ in rows}

    def _count_unspaced(self, pair: str) -> Counts:
        term = self._connection.tokenize(pair)[0][2]
        if len(pair) == 1:  # the first character of a pair, or the last of its run
            after = term + "\U0010ffff"
            rows = self._connection.tuples("prefix_counts", term=term, after=after, **self._range)
            return dict(rows)
        rows = self._connection.tuples("term_counts", term=term, **self._range)
        return {document_id: body + extra for document_id, body, extra in rows}

    def _count_as_written(self, words: list[str]) -> dict[str, Counts]:
        """Counts that tell upper from lower case, from the texts of the candidates."""
        if not words:
            return {}
        match = " OR ".join(map(quote, words))
        within = (self._range["first"], self._range["last"])
        document_ids = iter(sorted(matching_documents(self._connection, match, [within])))
        found: dict[str, dict[int, int]] = {word: {} for word in words}
        while some := list(islice(document_ids, DOCUMENTS_AT_ONCE)):
            for row in texts_of(self._connection, some):
                counts = Counter(split(self._connection, row["content"], case=True).words)
                for word in words:
                    if counts[word]:
                        found[word][row["document_id"]] = counts[word]
        return dict(found)


def _scored(
    connection: Connection, collection_id: int, units: Mapping[str, Counts], found: set[int]
) -> list[tuple[int, float]]:
    size = connection.row("index_size", collection_id=collection_id)
    assert size is not None
    weights = {
        unit: math.log(1 + (size["documents"] - len(counts) + 0.5) / (len(counts) + 0.5))
        for unit, counts in units.items()
    }
    rows = connection.tuples("document_lengths", document_ids=json.dumps(sorted(found)))
    ranked: list[tuple[float, str, int]] = []
    for document_id, path, length in rows:
        share = length / max(size["average_length"], 1)
        norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * share)
        score = 0.0
        for unit, counts in units.items():
            if count := counts.get(document_id):
                score += weights[unit] * count * (SATURATION + 1) / (count + norm)
        # Found but with no word that weighs, such as a phrase of short ones: last, yet positive.
        score = max(round(score, SCORE_DIGITS), 10**-SCORE_DIGITS)
        ranked.append((-score, path, document_id))
    return [(document_id, -score) for score, _, document_id in sorted(ranked)]
