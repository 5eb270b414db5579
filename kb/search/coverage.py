"""How much of a query's information passages and documents hold.

A word tells the more, the fewer passages hold it: its information is its idf,
log(1 + (N - n + 0.5) / (n + 0.5)) for n of N passages. What a passage holds of a query is the
information of the words that stand in it, as a share of all of the query's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kb.search.lookup import NOTHING, Holding, LookedUp, Unit, fts5_idf
from kb.search.ranking import APART, COMMON, LENGTH_WEIGHT, NEAR, SATURATION
from kb.search.word_counts import most_holding

# Information of a query, in natural units, with which its words say all that words can: that of one
# in a fifth of the passages. In a small file most of the text that there might be is missing.
TELLING = 1.5
FEWEST_PASSAGES = 100
_EMOJI = re.compile(r'"u[0-9a-f]{4,6}"')
LEAST_TOLD = 0.25  # what passages say more often stands before the rest, and none is noise


class Coverage(NamedTuple):
    """What passages hold of a query.

    Attributes:
        greatest_score: no bm25 score of the query is greater.
        held: by row id, the share of the information that a row holds; 0 where it is missing.
        rarity: all of the information, as a multiple of that of a word which one row alone holds.
        telling: 1, or less where very many rows hold the query's words, and least for stop words.
        weight: by row id, what makes a bm25 score of this file one of all files; 1 where missing.
    """

    greatest_score: float = 0.0
    held: Mapping[int, float] = NOTHING
    rarity: float = 0.0
    telling: float = 1.0
    weight: Mapping[int, float] = NOTHING

    def share(self, row_id: int, score: float) -> float:
        """A row's bm25 score as a share of the greatest that the query can have."""
        if self.greatest_score <= 0:
            return 0.0
        return score * self.weight.get(row_id, 1.0) / self.greatest_score


class Everywhere(NamedTuple):
    """How rare expressions are in all files that are searched as one.

    Attributes:
        total: the rows of their indexes.
        counts: in how many rows each expression is.
        common: those that are in so many rows that they tell next to nothing, and emoji that are
            in none: beside words these are decoration.
        idf: FTS5's, of each expression; 0 for such emoji.
        mean_length: of a document, in passages.
    """

    total: int
    counts: Mapping[str, int]
    common: Collection[str]
    idf: Mapping[str, float]
    mean_length: float


def everywhere(looked: Sequence[LookedUp]) -> Everywhere:
    """What the files know together."""
    counts: dict[str, int] = {}
    for one in looked:
        for match, holding in one.found.items():
            counts[match] = counts.get(match, 0) + holding.total
    common = {match for one in looked for match, holding in one.found.items() if holding.is_common}
    total = sum(one.total for one in looked)
    most = most_holding(total)
    # What no file holds too often may be common in all of them.
    also = common | {match for match, count in counts.items() if count >= most}
    if any(unit.match not in also for one in looked for unit in one.wanted):
        common = also
    idf = {match: fts5_idf(count, total) for match, count in counts.items()}
    nowhere = {match for match, count in counts.items() if not count and _EMOJI.fullmatch(match)}
    common = common | nowhere
    idf |= dict.fromkeys(nowhere, 0.0)
    documents = sum(one.documents for one in looked)
    return Everywhere(total, counts, common, idf, total / max(1, documents))


def coverage(own: LookedUp, files: Everywhere | None = None) -> Coverage:
    """What the rows that were asked about hold.

    Args:
        files: what all files that are searched as one know, this one among them; by default it
            is the only one.
    """
    if not (own.wanted or own.ranked):
        return Coverage()
    files = files or everywhere([own])
    total, counts = files.total, files.counts
    counted = [unit for unit in own.wanted if unit.match not in files.common] or own.wanted
    information = told = 0.0
    held: dict[int, float] = {}
    for unit in counted:
        weight = _weight(unit, counts, total)
        information += weight
        if not unit.is_stop_word:
            told += _weight(unit, counts, max(total, FEWEST_PASSAGES))
        for row_id, share in _shares(unit, own.found, counts, total).items():
            held[row_id] = held.get(row_id, 0.0) + weight * share
    return Coverage(
        _greatest(files, own.ranked),
        {row_id: value / information for row_id, value in held.items()},
        information / _information(1, max(total, 1)),
        max(min(told / TELLING, 1.0) ** 2, LEAST_TOLD),
        _weight_elsewhere(own, files) if total != own.total else {},
    )


def _weight_elsewhere(own: LookedUp, files: Everywhere) -> Mapping[int, float]:
    """For each row, what the words it holds weigh in all files, as a multiple of here.

    FTS5 knows the rows of its own file alone, and its score is a sum over words of their weight
    times how prominent they are in the row.
    """
    here: dict[int, float] = {}
    there: dict[int, float] = {}
    for match in dict.fromkeys(own.ranked):
        if own.found[match].is_common:  # its rows are not all known
            continue
        factor = files.idf[match] / fts5_idf(own.found[match].total, own.total)
        scores = own.scores[match]
        for row_id in own.found[match].rows:
            score = scores[row_id]
            here[row_id] = here.get(row_id, 0.0) + score
            there[row_id] = there.get(row_id, 0.0) + factor * score
    return {row_id: there[row_id] / score for row_id, score in here.items()}


def document_shares(own: LookedUp, files: Everywhere | None = None) -> Mapping[int, float]:
    """What the documents of the passages that were asked about hold of a query.

    It is the BM25 of the documents as a share of the greatest possible. How often they hold a word
    follows from the scores of their passages, so that it takes no index of documents. Words that
    very many passages hold are left out.

    Args:
        files: as `coverage`.
    """
    files = files or everywhere([own])
    weights = {match: files.idf[match] for match in own.often if match not in files.common}
    greatest = sum(weights.values())
    norms = {
        document_id: SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / files.mean_length)
        for document_id, length in own.lengths.items()
    }
    shares: dict[int, float] = {}
    for match, weight in weights.items():
        for document_id, count in own.often[match].items():
            share = count / (count + norms[document_id])
            shares[document_id] = shares.get(document_id, 0.0) + weight * share / greatest
    return shares


def _greatest(files: Everywhere, ranked: Sequence[str]) -> float:
    """(k1 + 1) times the sum of idf."""
    idf = 0.0
    for match in dict.fromkeys(ranked):
        idf += files.idf[match] * (COMMON if match in files.common else 1.0)
    return (SATURATION + 1) * idf


def _weight(unit: Unit, counts: Mapping[str, int], total: int) -> float:
    """A unit's information."""
    count = counts[unit.match]
    if not count and unit.near:
        count = max(counts[match] for match in unit.near)
    elif not count and unit.parts:
        # A name that stands nowhere as it was typed is looked for by its words.
        return sum(_information(counts[part], total) for part in unit.parts)
    return _information(count, total)


def _shares(
    unit: Unit, found: Mapping[str, Holding], counts: Mapping[str, int], total: int
) -> dict[int, float]:
    """How much of a unit's information each row holds, 0 to 1."""
    count = counts[unit.match]
    shares: dict[int, float] = {}
    if unit.near and not count:
        for match in unit.near:
            shares |= dict.fromkeys(found[match].rows, NEAR)
        return shares
    parts = {part: _information(counts[part], total) for part in unit.parts}
    whole = sum(parts.values())
    for part, weight in parts.items():
        for row_id in found[part].rows:
            shares[row_id] = shares.get(row_id, 0.0) + (APART if count else 1.0) * weight / whole
    return shares | dict.fromkeys(found[unit.match].rows, 1.0)


def _information(count: int, total: int) -> float:
    count = min(count, total)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))
