"""The lists that the keyword index gives for a query.

Rare words find passages, common ones only rank them (`split_by_rarity`, decision 22). In a small
part of a large file a function that knows the words' weights gives the scores: SQLite's `bm25()`
first counts each word's passages in the whole file, in every statement, at .025 us a passage.

A phrase is looked up by its rarest words near each other, and the texts of the few passages with
these are compared: the index would go through all passages with its words, 1.6 ms among 100,000
passages and 10 among a million.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from kb.search.files import Snapshot, bodies, matching, max_ranking_df
from kb.search.filters import (
    NO_FILTERS,
    NOTHING_LATE,
    Filters,
    first_passing,
    match_prefixes,
    passes,
)
from kb.search.query import Query, is_literal, match_alternatives, quote, says_little
from kb.search.ranking import COLUMN_WEIGHTS, LENGTH_WEIGHT, SATURATION, fts5_idf
from kb.store.connection import IndexedRow
from kb.store.contents import Ranges, indexed_texts

DEPTH = 300  # rows of a list whose scores are known; 1,000 ranked no better
SCORES_PER_CANDIDATE = 3  # of one of several files: twice as many bring .001 nDCG@10
# Passages that the rarest words find. If they are enough, commoner words only add to their scores:
# nearly all of the best hundred have a rare one (decision 22).
MAX_FOUND_BY = 2_000
MAX_FOUND_BY_SHARE = 0.005
MAX_FOUND_BY_IN_PART = 500  # each takes five times as long there
MAX_BY_WEIGHTS = 2_000  # passages of a part of the file; for more bm25() is faster
MAX_LOOKED_AT = 2_000  # passages, best first, until enough pass by their texts
MOST_COMMON = 3  # very common words of a query of nothing else
MAX_SCORED = 400_000  # passages, .6 us each; of a word of more the first by id are ranked
MAX_COUNTED = 8  # of them, to choose from
MAX_AMONG = 5_000  # passages whose ids SQLite gets; with more, hits are looked up in a set
MORE, MORE_AGAIN = 1.5, 8  # times the hits expected to be enough, and factor if they are not
LITERAL_DEPTH = 50
TYPED_DEPTH = 300  # passages with the phrase that are searched for its exact characters
RAREST = (3, 5)  # words searched near each other; more if the first are near too often
MAX_COMPARED = 300  # passages, which take as long as the phrase
_IN_NAME = re.compile(r"[\w-]")


class WordLists(NamedTuple):
    """What the keyword index says of a query."""

    alternatives: list[str]  # the MATCH expressions of the scores
    prefixes: dict[str, str]  # by text of a prefix, the MATCH expression of its words
    scores: dict[int, float]  # by chunk id, best first
    literal: list[int]  # chunks with the query as a phrase
    typed: set[int]  # those of them with its exact characters
    is_cut: bool  # matching passages may be missing


class WeighedTerm(NamedTuple):
    """A word's weight in the file, and its document frequency in a part of it."""

    idf: float
    passages: int


def word_lists(
    snapshot: Snapshot, query: Query, ranges: Ranges, depth: int, filters: Filters = NO_FILTERS
) -> WordLists:
    """What the index says of a query, for the chunks that its operators let pass."""
    has_prefix = any(operand.is_prefix for operand in (*query.must, *query.terms))
    prefixes = match_prefixes(snapshot, query) if has_prefix else {}
    alternatives = [*match_alternatives(query), *prefixes.values()]
    is_part = filters == NO_FILTERS and snapshot.is_small_part(ranges)
    common = 1 if query.must else MOST_COMMON  # a required word finds all that may be found
    finding, following = split_by_rarity(
        snapshot, alternatives, ranges if is_part else (), common=common
    )
    scored = max(min(DEPTH, SCORES_PER_CANDIDATE * depth), depth)
    scores = word_hits(
        snapshot,
        finding,
        following,
        ranges,
        scored if filters.late == NOTHING_LATE else MAX_LOOKED_AT,
        enough=depth,
        weights=weighed_terms(snapshot, [*finding, *following], ranges) if is_part else {},
        filters=filters,
    )
    is_cut = filters.is_cut
    if filters.late != NOTHING_LATE:
        passing = first_passing(snapshot.connection, filters, [*scores], depth)
        is_cut |= len(passing) < depth and len(scores) == MAX_LOOKED_AT
        scores = {chunk_id: scores[chunk_id] for chunk_id in passing[:scored]}
    literal, typed = literal_hits(snapshot, query, ranges, scores, filters)
    return WordLists([*finding, *following], prefixes, scores, literal, typed, is_cut)


def split_by_rarity(
    snapshot: Snapshot, matches: Sequence[str], part: Ranges = (), *, common: int = MOST_COMMON
) -> tuple[list[str], list[str]]:
    """The expressions that find passages, and those that only rank them; both rarest first. In a
    large file a very common expression is neither: it takes as long as all others together and says
    little. If no other occurs, the least `common` find. `part`: where to search, if it is small."""
    passages = snapshot.sizes.passages
    most = max_ranking_df(passages)
    if passages <= most:
        return list(matches), []
    counts = snapshot.estimated_df(matches, most)
    kept = sorted((match for match in matches if counts[match] < most), key=counts.__getitem__)
    if not any(counts[match] for match in kept):
        chosen = {*kept, *_least_common(snapshot, counts.keys() - {*kept}, common)}
        return [match for match in matches if match in chosen], []
    room = max(MAX_FOUND_BY, int(passages * MAX_FOUND_BY_SHARE))
    if part:
        counts = snapshot.df_within(kept, part)
        kept.sort(key=counts.__getitem__)
        room = MAX_FOUND_BY_IN_PART
    finding: list[str] = []
    for match in kept:
        room -= counts[match]
        if room < 0:
            break
        finding.append(match)
    return finding, kept[len(finding) :]


def _least_common(snapshot: Snapshot, matches: Collection[str], most: int) -> list[str]:
    """Of very common expressions, those that rank if there is nothing else."""
    total = snapshot.sizes.passages
    if len(matches) <= max(min(most, MAX_SCORED // total), 1):
        return [*matches]
    telling = sorted(matches, key=lambda match: (says_little(match.strip('"')), match))
    counts = snapshot.estimated_df(telling[:MAX_COUNTED], total)
    least = sorted(counts, key=lambda match: (counts[match], match))[:most]
    scored = accumulate(counts[match] for match in least)
    return least[: max(sum(passages <= MAX_SCORED for passages in scored), 1)]


def word_hits(
    snapshot: Snapshot,
    finding: Sequence[str],
    following: Sequence[str],
    ranges: Ranges,
    depth: int,
    *,
    enough: int = 0,
    weights: Mapping[str, WeighedTerm] = MappingProxyType({}),
    filters: Filters = NO_FILTERS,
) -> dict[int, float]:
    """As `keyword_hits` for any of some expressions, without scoring all passages of common ones.
    `finding` ones find passages; `following` ones add to the scores, rarest first. Until there are
    `depth` passages, pairs of these find some too; with fewer than `enough` (by default `depth`),
    any does. `weights`: of all expressions, where that saves time."""

    def hits(
        match: str, words: Sequence[str], leading: Sequence[str], most: int = 0
    ) -> dict[int, float]:
        """The hits of `match`, made of `words`, of which `leading` find the passages."""
        if weights and sum(weights[word].passages for word in leading) <= MAX_BY_WEIGHTS:
            idf = json.dumps([weights[word].idf for word in words])
            return keyword_hits(snapshot, match, ranges, depth, idf=idf)
        return keyword_hits(snapshot, match, ranges, depth, filters, most=most)

    either, others = " OR ".join(finding), " OR ".join(following)
    scores = hits(either, finding, finding)
    if finding and following:
        # A passage in both lists has its whole score in the second one.
        scores |= hits(f"({others}) AND ({either})", [*following, *finding], finding)
    for number, match in enumerate(following[:-1], 1):
        if len(scores) >= depth:
            break
        rest = " OR ".join(following[number:])
        # The passages in `scores` have their whole score.
        scores = hits(f"({match}) AND ({rest})", following[number - 1 :], [match]) | scores
    if following and len(scores) < (enough or depth):
        every = [*finding, *following]
        scores = hits(" OR ".join(every), every, every, snapshot.sizes.passages)
    return dict(sorted(scores.items(), key=lambda row: (-row[1], row[0]))[:depth])


def keyword_hits(
    snapshot: Snapshot,
    match: str,
    ranges: Ranges,
    depth: int,
    filters: Filters = NO_FILTERS,
    *,
    idf: str = "",
    most: int = 0,
) -> dict[int, float]:
    """Chunk ids with their bm25 score (positive, higher is better), best first; `idf`: the weights
    of the expression's words as a JSON list, for `bm25_of_weights`; `most`: passages that are
    ranked, by default MAX_SCORED."""
    if not match:
        return {}
    only, without = filters.only, filters.without
    statement = "keyword_hits"
    parameters: dict[str, Any] = {
        "match": match,
        "ranges": json.dumps(ranges),
        "most": most or MAX_SCORED,
        "limit": depth,
    }
    if idf:
        statement = "keyword_hits_by_known_words"
        parameters["idf"] = idf
    elif only is not None and len(only) > MAX_AMONG:
        return _passing_hits(snapshot, parameters, only)
    elif only is not None or without:
        statement = "keyword_hits_except" if only is None else "keyword_hits_among"
        parameters["chunk_ids"] = json.dumps([*((without or ()) if only is None else only)])
    rows = snapshot.connection.tuples(statement, **parameters, **COLUMN_WEIGHTS)
    return {chunk_id: -score for chunk_id, score in rows}


def _passing_hits(
    snapshot: Snapshot, parameters: dict[str, Any], only: Set[int]
) -> dict[int, float]:
    """As `keyword_hits` among very many chunks, whose ids SQLite would read more slowly."""
    depth = parameters["limit"]
    parameters["most"] = snapshot.sizes.passages
    parameters["limit"] = int(MORE * depth * snapshot.sizes.passages / len(only))
    while True:
        rows = snapshot.connection.tuples("keyword_hits", **parameters, **COLUMN_WEIGHTS)
        hits = {chunk_id: -score for chunk_id, score in rows if chunk_id in only}
        if len(hits) >= depth or len(rows) < parameters["limit"]:
            return dict(islice(hits.items(), depth))
        parameters["limit"] *= MORE_AGAIN


def literal_hits(
    snapshot: Snapshot,
    query: Query,
    ranges: Ranges,
    scores: Mapping[int, float],
    filters: Filters = NO_FILTERS,
) -> tuple[list[int], set[int]]:
    """Passages that contain the query as a phrase, and those with its exact characters. Somebody
    who types an error message or the name of an option wants its occurrence first. An option's
    words may be everywhere (`--all`), so more passages are compared for it, best `scores` first."""
    if not is_literal(query):
        return [], set()
    holding = sorted(holding_phrase(snapshot, query.text, ranges))
    chunk_ids = [chunk_id for chunk_id in holding if passes(filters, chunk_id)]
    # For scores of a phrase FTS5 would count first, a second look-up.
    chunk_ids.sort(key=lambda chunk_id: -scores.get(chunk_id, 0.0))
    text = " ".join(query.text.split()).casefold()
    if text.replace(" ", "").isalnum():  # without signs
        return chunk_ids[:LITERAL_DEPTH], set()
    # Within a longer name it is another name: `foreign_server_type` is not `foreign_server`.
    before = r"(?<![\w-])(?<!\d\.)" if _IN_NAME.match(text[0]) else ""
    behind = r"(?![\w-])(?!\.\d)" if _IN_NAME.match(text[-1]) else ""
    as_typed = re.compile(before + re.escape(text) + behind)
    del chunk_ids[TYPED_DEPTH:]
    typed = {
        chunk_id
        for chunk_id, _, *texts in bodies(snapshot.connection, chunk_ids)
        if any(as_typed.search(" ".join(text.split()).casefold()) for text in texts)
    }
    chunk_ids.sort(key=lambda chunk_id: chunk_id not in typed)
    return chunk_ids[:LITERAL_DEPTH], typed


def holding_phrase(snapshot: Snapshot, text: str, ranges: Ranges) -> set[int]:
    """The passages with a text as a phrase, by stems, in one column of the index."""
    connection = snapshot.connection
    text = unicodedata.normalize("NFKC", text)
    most = max_ranking_df(snapshot.sizes.passages)
    for near in _rarest_near(snapshot, text, most) if snapshot.sizes.passages > most else ():
        holding = matching(connection, near, ranges, MAX_COMPARED + 1)
        if len(holding) <= MAX_COMPARED:
            phrase = f" {' '.join(connection.stems(text))} "
            return {
                chunk_id
                for chunk_id, *texts in indexed_texts(connection, sorted(holding))
                if any(phrase in f" {' '.join(connection.stems(part))} " for part in texts if part)
            }
    return matching(connection, quote(text), ranges)


def _rarest_near(snapshot: Snapshot, text: str, most: int) -> Iterator[str]:
    """Expressions that match wherever a text occurs as a phrase."""
    terms = snapshot.connection.tokenize(text, stem=True)
    words = {stem: text[start:end] for start, end, stem in terms}.values()
    telling = [quote(word) for word in words if not says_little(word)]
    # These are counted already; stop words would have to be counted first.
    counts = snapshot.estimated_df(telling, most)
    telling.sort(key=counts.__getitem__)
    for number in RAREST:
        chosen = telling[:number]
        if 1 < len(chosen) < len(words):
            yield f"NEAR({' '.join(chosen)}, {len(terms)})"


def weighed_terms(
    snapshot: Snapshot, matches: Sequence[str], part: Ranges
) -> dict[str, WeighedTerm]:
    """The weights of words; none if an expression is several words."""
    if not all(map(snapshot.term, matches)):
        return {}
    snapshot.connection.add_index_function(bm25_of_weights)
    total = snapshot.sizes.passages
    counts = snapshot.estimated_df(matches, total)
    passages = snapshot.df_within(matches, part)
    return {
        match: WeighedTerm(fts5_idf(counts[match], total), passages[match]) for match in matches
    }


def bm25_of_weights(row: IndexedRow, *parameters: Any) -> float:
    """As `bm25()`, where smaller is better: 3 us a passage instead of .6. `parameters`: a JSON list
    of the weights of the expression's words, in order, and each column's weight."""
    idf, *columns = parameters
    mean = row.column_total_size() / row.row_count
    norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * row.column_size() / mean)
    score = 0.0
    for number, weight in _weights(idf):
        title, heading, body, extra = map(len, row.phrase_locations(number))
        often = columns[0] * title + columns[1] * heading + columns[2] * body + columns[3] * extra
        score -= weight * often * (SATURATION + 1) / (often + norm)
    return score


@lru_cache(maxsize=64)
def _weights(idf: str) -> list[tuple[int, float]]:
    return list(enumerate(json.loads(idf)))
