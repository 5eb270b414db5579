"""The candidates of one file for a query: by words, by meaning, by name, with the terms they hold.

The answer of a file is complete in itself: beside the candidates it gives the document frequency of
the query's terms, so that candidates of several files can be judged together (`merge.py`).

Terms that very many passages hold say so little that they are passed over, which bounds the cost of
a look-up. Going through the passages that hold a term takes .05 us each, a bm25 score .8 us.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from types import MappingProxyType
from typing import Any, NamedTuple

from kb.models.embedder import Floats
from kb.search.candidate_texts import weigh_addresses, without_other_words
from kb.search.keywords import WordLists, word_lists
from kb.search.operators import NO_FILTERS, NOTHING_LATE, Filters, first_passing, passes
from kb.search.query import Operand, Query, quote
from kb.search.ranking import COLUMN_WEIGHTS, frequency_of, fts5_idf, readable_share
from kb.search.snapshot import FileModel, Sizes, Snapshot, max_df, max_ranking_df
from kb.store.chunks import WHOLE_FILE, ChunkRange, count_chunks_of, range_around
from kb.store.citation_keys import page_key
from kb.store.vectors import FEWEST_RESULTS, nearest_chunks, query_blob
from kb.text.terms import bigrams, is_unspaced, pictographs, runs, words

DEPTH = 100  # passages of each list that become candidates
PROMISING = 40  # candidates by words, and by meaning, whose documents are looked at as a whole
MIN_SHARE = 10  # of what one of several files spends
FARTHER = 4  # times as many are looked at where some do not pass by their texts
WIDER = 1.25  # than a file's part of all passages is its part of the lists
MAX_TITLE_WORDS = 3  # of a query that may be a title
MAX_PATH = 300  # characters
MAX_NAMED = 20  # documents of whose path a query is the end
MAX_SIBLINGS = 20_000  # passages of the candidates' documents that are looked at
MAX_TERMS = 100
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class FileQuery(NamedTuple):
    """What one file is asked, and where in it."""

    query: Query
    vector: Floats | None = None  # the query's unit vector by the file's model; None: words alone
    ranges: Sequence[ChunkRange] = (WHOLE_FILE,)
    filters: Filters = NO_FILTERS  # what the operators let pass
    # How each collection is shown, by its row id.
    called: dict[int, dict[str, str]] = {}  # noqa: RUF012 - never changed


class Budget(NamedTuple):
    """How much of a file becomes candidates."""

    depth: int = DEPTH  # passages of each list
    promising: int = PROMISING  # of each list those whose documents are looked at as a whole
    compared: int = FEWEST_RESULTS  # results for which vectors are compared, four times as many
    use_words: bool = True  # False is meaning alone; operators are still enforced

    def shared(self, part: float, limit: int) -> Budget:
        """What one of several files spends, so that all together cost little more than one.

        Args:
            part: its share of all passages.
        """

        def share(whole: int, wider: float = 1.0) -> int:
            return min(max(round(whole * part * wider), MIN_SHARE), whole)

        return self._replace(
            depth=max(share(self.depth, WIDER), min(limit, self.depth)),
            promising=share(self.promising),
            compared=share(self.compared),
        )


class Term(NamedTuple):
    """What one word of a query looks for, as MATCH expressions."""

    match: str  # the word, or a name of several such as `wind_speed_max`, as it was typed
    parts: tuple[str, ...] = ()  # a name's words by themselves
    near: tuple[str, ...] = ()  # words of the file that are taken for a misspelt one


class Postings(NamedTuple):
    """The document frequency of an expression, and which of the candidates hold it."""

    df: int
    chunks: frozenset[int]
    is_common: bool


class TermMatches(NamedTuple):
    """What one file's index says of the terms of a query."""

    terms: Sequence[Term] = ()
    ranked: Sequence[str] = ()  # the MATCH expressions that a bm25 score is made of
    postings: Mapping[str, Postings] = NOTHING  # of each expression
    sizes: Sizes = Sizes(0, 0)  # of the file
    # By expression of `ranked` that is not common, its part of a chunk's bm25 score.
    scores: Mapping[str, Mapping[int, float]] = NOTHING
    # Of the documents that were looked at as a whole, in passages.
    lengths: Mapping[int, int] = NOTHING
    # By expression as in `scores`, about how often each of these holds it.
    frequencies: Mapping[str, Mapping[int, float]] = NOTHING
    # The candidates whose title and headings hold all terms, where that was asked for.
    titled: Collection[int] = frozenset()
    # By expression, the candidates that hold it in addresses of links alone.
    by_address: Mapping[str, Collection[int]] = NOTHING


class Candidates(NamedTuple):
    """The answer of one file."""

    query: Query
    model: FileModel
    nearest: Sequence[tuple[int, float]] = ()  # chunk ids with their distance, nearest first
    words: WordLists | None = None  # None: meaning alone is asked for, or nothing can be found
    rows: Sequence[tuple[Any, ...]] = ()  # of the statement `candidates`
    matches: TermMatches = TermMatches()
    named: frozenset[int] = frozenset()  # first chunks of the documents whose path is asked for
    readable: float = 1.0  # the share of the query that the file's model can read


def candidates(snapshot: Snapshot, file_query: FileQuery, budget: Budget) -> Candidates:
    """The answer of one file.

    A query of required words alone is judged by its words, with or without a vector: the vector
    only tells the distances.
    """
    query, vector, ranges, filters, _ = file_query
    model = snapshot.model
    if query.asks_for_nothing or filters.only == set():
        return Candidates(query, model)  # an empty text is near to nothing in particular
    nearest: Sequence[tuple[int, float]] = ()
    if vector is not None and not (budget.use_words and query.is_exact):
        nearest = nearest_chunks(
            snapshot.connection,
            vector,
            ranges,
            budget.depth * (1 if filters.late == NOTHING_LATE else FARTHER),
            only=filters.only,
            without=filters.without,
            fewest=budget.compared,
        )
        if filters.late != NOTHING_LATE:
            distances = dict(nearest)
            passing = first_passing(snapshot.connection, filters, [*distances], budget.depth)
            nearest = [(chunk_id, distances[chunk_id]) for chunk_id in passing[: budget.depth]]
    if not budget.use_words:
        return Candidates(query, model, nearest)
    lists = word_lists(snapshot, query, ranges, budget.depth, filters)
    ids = dict.fromkeys(
        [*lists.literal, *[*lists.scores][: budget.depth], *(chunk_id for chunk_id, _ in nearest)]
    )
    if query.must and filters.only and filters.late == NOTHING_LATE and len(ids) < DEPTH:
        # What the operators let pass is found, even where no single word of it ranks.
        ids |= dict.fromkeys(sorted(filters.only.difference(ids))[:DEPTH])
    named: list[int] = []
    if {".", "/"} & {*query.text.strip()}:
        named = _named(snapshot, query, ranges, filters)
    rows = snapshot.connection.tuples(
        "candidates",
        query=None if vector is None else query_blob(vector),
        chunk_ids=json.dumps([*ids, *named]),
    )
    document_of = {row[0]: row[1] for row in rows}
    terms = terms_of(query, lists.prefixes)
    matches = match_terms(
        snapshot,
        terms,
        lists.alternatives,
        document_of,
        {
            *_promising_documents(rows, lists.scores, model, budget.promising),
            *(document_of[chunk_id] for chunk_id in named),
        },
        titles=len(terms) <= MAX_TITLE_WORDS,
    )
    lists, matches = without_other_words(snapshot, lists, matches, document_of)
    lists, matches = weigh_addresses(snapshot, query.text, lists, matches, document_of)
    readable = 0.0 if query.is_exact else 1.0
    if model.is_english and readable:
        readable = readable_share(query.words_to_embed)
    return Candidates(query, model, nearest, lists, rows, matches, frozenset(named), readable)


def _promising_documents(
    rows: Sequence[tuple[Any, ...]], scores: Mapping[int, float], model: FileModel, most: int
) -> set[int]:
    """The documents of the candidates that are among the best by words or the nearest."""
    best = nlargest(most, rows, key=lambda row: scores.get(row[0], 0.0))
    standard = model.calibration.standard
    near = [row for row in rows if row[2] is not None]
    best += nlargest(most, near, key=lambda row: standard(1 - (row[2] + row[3]) / 2))
    return {row[1] for row in best}


def _named(
    snapshot: Snapshot, query: Query, ranges: Sequence[ChunkRange], filters: Filters
) -> list[int]:
    """The first passages of the documents whose path, or the end of it, is the query."""
    path = query.text.strip()
    if query.must or query.must_not or len(path) > MAX_PATH:
        return []
    rows = snapshot.connection.tuples(
        "first_chunks_named", key=page_key(path), ranges=json.dumps(ranges), limit=MAX_NAMED
    )
    return [row[0] for row in rows if passes(filters, row[0])]


def terms_of(query: Query, prefixes: Mapping[str, str] = NOTHING) -> list[Term]:
    """The terms of a query, each once; stop words only where there is nothing else.

    Args:
        prefixes: for the text of a prefix the MATCH expression of the words that begin so.
    """
    guessed = {word for _, likely in query.guesses for word in likely}
    near = {text: tuple(map(quote, likely)) for text, likely in query.guesses}
    typed = [term for term in query.terms if term.text not in guessed]
    telling = [term for term in typed if not term.is_stop_word]
    terms: dict[str, Term] = {}
    for operand in (*query.must, *(telling or typed)):
        if operand.is_prefix and operand.text in prefixes:
            of_operand: Sequence[Term] = [Term(prefixes[operand.text])]
        else:
            of_operand = _terms_of(operand, near.get(operand.text, ()))
        for term in of_operand:
            terms.setdefault(term.match, term)
    return list(terms.values())[:MAX_TERMS]


@lru_cache(maxsize=1024)
def _terms_of(operand: Operand, near: tuple[str, ...]) -> Sequence[Term]:
    """The terms of one word or phrase; cached for several files."""
    normal = unicodedata.normalize("NFKC", operand.text)
    parts = words(normal)
    if not parts:
        return [Term(quote(term)) for term in pictographs(normal)]
    if not any(map(is_unspaced, parts)):
        each = tuple(map(quote, parts)) if len(parts) > 1 else ()
        return [Term(quote(normal) + ("*" if operand.is_prefix else ""), each, near)]
    terms: list[Term] = []
    for run in (run for word in parts for run in runs(word)):
        if is_unspaced(run) and len(run) > 1:
            terms += [Term(quote(pair)) for pair in bigrams(run)]
        else:
            terms.append(Term(quote(run) + "*" * is_unspaced(run)))
    return terms


def match_terms(
    snapshot: Snapshot,
    terms: Sequence[Term],
    ranked: Sequence[str],
    document_of: Mapping[int, int],
    whole: Collection[int],
    *,
    titles: bool = False,
) -> TermMatches:
    """How frequent a query's terms are, which candidates hold them and how often their documents.

    Args:
        document_of: the documents of the candidates.
        whole: those of them all of whose passages are looked at.
        titles: also which candidates' titles and headings hold all terms.
    """
    if not terms:
        return TermMatches()
    sizes = snapshot.sizes
    total, most = sizes.passages, max_df(sizes.passages)
    of_terms = [match for term in terms for match in (term.match, *term.parts, *term.near)]
    matches = list(dict.fromkeys((*of_terms, *ranked)))
    estimated = snapshot.estimated_df(matches, most)
    df = {match: min(count, most) for match, count in estimated.items()}
    common = {match for match in matches if df[match] >= most}
    if common.issuperset(term.match for term in terms):
        least = [match for match in of_terms if match in ranked] or of_terms
        df |= snapshot.estimated_df(least, total)
        # What these tell depends on it much.
        df |= snapshot.df([match for match in least if df[match] > max_ranking_df(total)], total)
        common.difference_update(least)
    rarer = [match for match in dict.fromkeys(ranked) if match not in common]
    idf = {match: fts5_idf(df[match], total) for match in rarer or dict.fromkeys(ranked)}
    scores, frequencies = _scores(snapshot, idf, document_of, whole)
    others = [match for match in matches if match not in common and match not in scores]
    in_titles = [f"{{title heading}} : ({term.match})" for term in terms] if titles else []
    holding = _chunks_holding(snapshot, [*others, *in_titles], document_of)
    chunks: dict[str, Iterable[int]] = {**holding, **{match: scores[match] for match in rarer}}
    return TermMatches(
        terms,
        ranked,
        {
            match: Postings(df[match], frozenset(chunks.get(match, ())), match in common)
            for match in matches
        },
        sizes,
        scores,
        count_chunks_of(snapshot.connection, whole),
        frequencies,
        set.intersection(*(holding[match] for match in in_titles)) if in_titles else frozenset(),
    )


def _chunks_holding(
    snapshot: Snapshot, matches: Sequence[str], chunk_ids: Collection[int]
) -> dict[str, set[int]]:
    """Of some chunks, those that hold each expression."""
    holding: dict[str, set[int]] = {match: set() for match in matches}
    if not (holding and chunk_ids):
        return holding
    rows = snapshot.connection.tuples(
        "expressions_held",
        matches=json.dumps([*holding]),
        chunk_ids=json.dumps([*chunk_ids]),
        # Bounds spare a search in a part of the file the rest of it.
        first=min(chunk_ids),
        last=max(chunk_ids),
    )
    for match, chunk_id in rows:
        holding[match].add(chunk_id)
    return holding


def _scores(
    snapshot: Snapshot,
    idf: Mapping[str, float],
    document_of: Mapping[int, int],
    whole: Collection[int],
) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]]]:
    """By expression its part of some chunks' bm25 scores, and how often some documents hold it.

    The frequency is approximate: it follows from a passage's bm25 divided by the idf, as if the
    passage had mean length, which the budget of passages makes most of them have.

    Args:
        idf: of each expression.
        document_of: the chunks, each with its document.
        whole: documents all of whose passages are looked at.
    """
    scores: dict[str, dict[int, float]] = {match: {} for match in idf}
    frequencies: dict[str, dict[int, float]] = {match: {} for match in idf}
    first, last = range_around([*document_of, *whole])
    rows = snapshot.connection.tuples(
        "chunk_scores",
        matches=json.dumps([*idf]),
        chunk_ids=json.dumps([*document_of]),
        document_ids=json.dumps(sorted(whole)),
        most=MAX_SIBLINGS,
        first=first,
        last=last,
        **COLUMN_WEIGHTS,
    )
    for match, chunk_id, document_id, score in rows:
        if chunk_id in document_of:
            scores[match][chunk_id] = -score
        if document_id in whole:
            of_match = frequencies[match]
            count = frequency_of(-score / idf[match])
            of_match[document_id] = of_match.get(document_id, 0.0) + count
    return scores, frequencies
