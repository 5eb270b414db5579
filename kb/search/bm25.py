"""Ranks whole documents of one index by words alone.

The score is BM25 (Robertson, Zaragoza 2009) with the index's own counts: its documents, their
average length, and each word's document frequency. FTS5's bm25 counts passages of the whole file
and gives no weight to a word in more than half of them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from kb.search.files import matching
from kb.search.filters import document_filters
from kb.search.occurrences import documents_holding
from kb.search.query import Operand, Query, quote
from kb.search.ranking import LENGTH_WEIGHT, SATURATION, SCORE_DIGITS
from kb.search.words import pattern, split, unspaced_runs
from kb.store.connection import Connection
from kb.store.contents import ChunkRange, collection_range, documents_of_chunks, texts_of
from kb.text.terms import bigrams, is_unspaced, parts

MAX_DOCUMENTS = 100  # whose texts are held in memory
PART_CHARACTERS = 1 << 14  # counted at once: 20 MB of Chinese, seven million words, took 1.2 GB

Counts = Mapping[int, int]  # by document


@dataclass(frozen=True, slots=True)
class IndexOptions:
    lowercase: bool = True
    min_length: int = 2

    @classmethod
    def from_json(cls, text: str) -> IndexOptions:
        options = json.loads(text)
        return cls(options.get("lowercase", True), options.get("min_length", 2))

    def counts(self, word: str) -> bool:
        """Whether a word is long enough; a character of unspaced script is a word."""
        return len(word) >= self.min_length or is_unspaced(word)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All matching documents, best first, as (row id, score)."""

    documents: list[tuple[int, float]]
    query: Query  # without words too short to be searched, which are `ignored`
    ignored: tuple[str, ...]


def rank_documents(
    connection: Connection, query: Query, collection_id: int, options: IndexOptions
) -> Ranking:
    """The matching documents of an index, scored; ties by path."""
    within = collection_range(collection_id)
    query, ignored = without_short_words(connection, query, options)
    if query.asks_for_nothing or any(operand.text in ignored for operand in query.must):
        return Ranking([], query, ignored)
    only, without, *_ = document_filters(connection, query, [within], case=not options.lowercase)
    if only == set():
        return Ranking([], query, ignored)
    counter = _Counter(connection, within, options)
    counts: dict[str, Counts] = {}
    for operand in (*query.terms, *query.must):
        counts |= counter.counts(operand)
    documents = (set().union(*counts.values()) if only is None else only) - (without or set())
    return Ranking(_scored(connection, collection_id, counts, documents), query, ignored)


def without_short_words(
    connection: Connection, query: Query, options: IndexOptions
) -> tuple[Query, tuple[str, ...]]:
    """A query without words too short for an index. A required one stays: nothing matches it."""

    def is_short(operand: Operand) -> bool:
        words = pattern(connection, operand)
        return not words.has_pictographs and not any(map(options.counts, words.folded))

    operands = (*query.must, *query.terms, *query.must_not)
    short = set(filter(is_short, operands))
    kept = query._replace(
        terms=tuple(operand for operand in query.terms if operand not in short),
        must_not=tuple(operand for operand in query.must_not if operand not in short),
    )
    return kept, tuple(operand.text for operand in operands if operand in short)


def count_words(connection: Connection, text: str, options: IndexOptions) -> int:
    """How many words of a text an index takes, repeats included."""
    return sum(
        sum(map(options.counts, split(connection, part, pictographs=True).words))
        for part in parts(text, PART_CHARACTERS)
    )


class _Counter:
    """How often the documents of an index contain the words of a query."""

    def __init__(self, connection: Connection, within: ChunkRange, options: IndexOptions) -> None:
        self._connection = connection
        self._within = within
        self._bounds = {"first": within[0], "last": within[1]}
        self._options = options

    def counts(self, operand: Operand) -> dict[str, Counts]:
        """For each weighted word of an operand, the counts by document."""
        words = pattern(self._connection, operand)
        runs, others = unspaced_runs(words)
        case = not self._options.lowercase
        if words.is_prefix and len(words.words) == 1 and not runs:
            holding = documents_holding(self._connection, operand, [self._within], case=case)
            return {f"{operand.text}*": dict.fromkeys(holding, 1)}
        counts = {pair: self._count_unspaced(pair) for run in runs for pair in bigrams(run)}
        if case:
            others = split(self._connection, operand.text, case=True).words
        long = [word for word in others if self._options.counts(word) and not is_unspaced(word)]
        if case:
            return counts | self._count_as_written(long)
        for word in long:
            stem = self._connection.tokenize(word, stem=True)[0][2]
            rows = self._connection.tuples("term_counts", term=stem, **self._bounds)
            # Extra terms repeat those of titles, so they count once.
            counts[stem] = {document_id: body or 1 for document_id, body, _ in rows}
        return counts

    def _count_unspaced(self, pair: str) -> Counts:
        term = self._connection.tokenize(pair)[0][2]
        if len(pair) == 1:  # the first of a pair, or the last of its run
            after = term + "\U0010ffff"
            rows = self._connection.tuples("prefix_counts", term=term, after=after, **self._bounds)
            return dict(rows)
        rows = self._connection.tuples("term_counts", term=term, **self._bounds)
        return {document_id: body + extra for document_id, body, extra in rows}

    def _count_as_written(self, words: list[str]) -> dict[str, Counts]:
        """Case-sensitive counts, from the texts of the candidates."""
        if not words:
            return {}
        chunk_ids = matching(self._connection, " OR ".join(map(quote, words)), [self._within])
        document_ids = iter(sorted(set(documents_of_chunks(self._connection, chunk_ids).values())))
        counts: dict[str, dict[int, int]] = {word: {} for word in words}
        while batch := list(islice(document_ids, MAX_DOCUMENTS)):
            for row in texts_of(self._connection, batch):
                in_text = Counter(split(self._connection, row["content"], case=True).words)
                for word in words:
                    if in_text[word]:
                        counts[word][row["document_id"]] = in_text[word]
        return dict(counts)


def _scored(
    connection: Connection, collection_id: int, counts: Mapping[str, Counts], documents: set[int]
) -> list[tuple[int, float]]:
    size = connection.row("index_size", collection_id=collection_id)
    assert size is not None
    weights = {
        word: math.log(1 + (size["documents"] - len(of_word) + 0.5) / (len(of_word) + 0.5))
        for word, of_word in counts.items()
    }
    rows = connection.tuples("document_lengths", document_ids=sorted(documents))
    ranked: list[tuple[float, str, int]] = []
    for document_id, path, length in rows:
        share = length / max(size["average_length"], 1)
        norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * share)
        score = 0.0
        for word, of_word in counts.items():
            if count := of_word.get(document_id):
                score += weights[word] * count * (SATURATION + 1) / (count + norm)
        # Without a weighted word, as for a phrase of short ones, it is last, yet positive.
        score = max(round(score, SCORE_DIGITS), 10**-SCORE_DIGITS)
        ranked.append((-score, path, document_id))
    return [(document_id, -score) for score, _, document_id in sorted(ranked)]
