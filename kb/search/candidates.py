"""A file's candidates for a query: by words, by meaning and by name, with the terms they contain.

A file's answer is self-contained: beside the candidates it gives the document frequency of the
query's terms, so that candidates of several files can be judged together (`evidence.py`).

Terms in very many passages say so little that they are skipped, which bounds the cost of a
look-up. Going through a term's passages takes .05 us each, a bm25 score .8 us.

Where the index says too little, the candidates' texts decide. To the index `lfs` and `LF` are one
stem, and `1.5` is a 1 followed by a 5, as in `1.1.5`: its tokenizer must be one that a plain
`sqlite3` knows. It indexes the address of a link as text, so that its words are found; but a
passage with `[x](calibrate-rain-gauge.md)` is not about a rain gauge.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from kb.models.embedder import Floats
from kb.models.tokens import english_number
from kb.search.files import FileModel, Sizes, Snapshot, bodies, max_df, max_ranking_df
from kb.search.filters import NO_FILTERS, NOTHING_LATE, Filters, first_passing, passes
from kb.search.keywords import WordLists, word_lists
from kb.search.query import Operand, Query, quote
from kb.search.ranking import ADDRESS, COLUMN_WEIGHTS, frequency_of, fts5_idf, readable_share
from kb.search.typos import stems_of_words
from kb.store.citations import page_key
from kb.store.collections import Labels
from kb.store.connection import Connection
from kb.store.contents import WHOLE_FILE, Ranges
from kb.store.vectors import FEWEST_RESULTS, nearest_chunks, query_blob
from kb.text.terms import bigrams, is_unspaced, pictographs, runs, version_pattern, words

DEPTH = 100  # passages of each list that become candidates
PROMISING = 40  # candidates by words, and by meaning, whose documents are counted as a whole
MIN_SHARE = 10  # of what one of several files spends
FARTHER = 4  # times as many are read if some may fail by their texts
WIDER = 1.25  # a file's part of the lists, relative to its part of all passages
MAX_TITLE_WORDS = 3  # of a query that may be a title
MAX_PATH = 300  # characters
MAX_NAMED = 20  # documents whose path ends with the query
MAX_SIBLINGS = 20_000  # passages of the candidates' documents that are scored
MAX_TERMS = 100
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class FileQuery(NamedTuple):
    """What one file is asked, and where in it."""

    query: Query
    vector: Floats | None = None  # the query's unit vector by the file's model; None: words alone
    ranges: Ranges = (WHOLE_FILE,)
    filters: Filters = NO_FILTERS  # what the operators let pass
    called: Labels = {}  # noqa: RUF012 - never changed


class Budget(NamedTuple):
    """How much of a file becomes candidates."""

    depth: int = DEPTH  # passages of each list
    promising: int = PROMISING  # of each list, those whose documents are counted as a whole
    compared: int = FEWEST_RESULTS  # results; four times as many vectors are compared
    use_words: bool = True  # False: meaning alone; operators are still enforced

    def shared(self, part: float, limit: int) -> Budget:
        """The budget of one of several files with `part` of all passages: all cost little more than
        one."""

        def share(whole: int, wider: float = 1.0) -> int:
            return min(max(round(whole * part * wider), MIN_SHARE), whole)

        return self._replace(
            depth=max(share(self.depth, WIDER), min(limit, self.depth)),
            promising=share(self.promising),
            compared=share(self.compared),
        )


class Term(NamedTuple):
    """What one word of a query looks for, as MATCH expressions."""

    match: str  # the word, or a name such as `wind_speed_max`, as typed
    parts: tuple[str, ...] = ()  # a name's single words
    near: tuple[str, ...] = ()  # likely words for a misspelt one


class Postings(NamedTuple):
    """An expression's document frequency, and the candidates that contain it."""

    df: int
    chunks: frozenset[int]
    is_common: bool


class TermMatches(NamedTuple):
    """What one file's index says of a query's terms."""

    terms: Sequence[Term] = ()
    ranked: Sequence[str] = ()  # the MATCH expressions of a bm25 score
    postings: Mapping[str, Postings] = NOTHING  # of each expression
    sizes: Sizes = Sizes(0, 0)  # of the file
    # By expression of `ranked` that is not common, its part of a chunk's bm25 score.
    scores: Mapping[str, Mapping[int, float]] = NOTHING
    lengths: Mapping[int, int] = NOTHING  # of the documents counted as a whole, in passages
    # By expression as in `scores`, its approximate count in each of these documents.
    frequencies: Mapping[str, Mapping[int, float]] = NOTHING
    titled: Collection[int] = frozenset()  # candidates with all terms in title and headings
    # By expression, the candidates that hold it in addresses of links alone.
    by_address: Mapping[str, Collection[int]] = NOTHING


class Candidates(NamedTuple):
    query: Query
    model: FileModel
    nearest: Sequence[tuple[int, float]] = ()  # chunk ids with their distance, nearest first
    words: WordLists | None = None  # None: meaning alone is asked for, or nothing can match
    rows: Sequence[tuple[Any, ...]] = ()  # of the statement `candidates`
    matches: TermMatches = TermMatches()
    named: frozenset[int] = frozenset()  # first chunks of documents whose path is asked for
    readable: float = 1.0  # the share of the query that the file's model can read


def candidates(snapshot: Snapshot, file_query: FileQuery, budget: Budget) -> Candidates:
    """The answer of one file. With required words alone a vector only gives the distances."""
    query, vector, ranges, filters, _ = file_query
    model = snapshot.model
    if query.asks_for_nothing or filters.only == set():
        return Candidates(query, model)  # an empty text has no meaning to be near to
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
        # What the operators let pass is an answer even if no single word of it ranks.
        ids |= dict.fromkeys(sorted(filters.only.difference(ids))[:DEPTH])
    is_path = {".", "/"} & {*query.text.strip()}
    named = _named(snapshot, query, ranges, filters) if is_path else []
    rows = snapshot.connection.tuples(
        "candidates",
        query=None if vector is None else query_blob(vector),
        chunk_ids=json.dumps([*ids, *named]),
    )
    document_of = {row[0]: row[1] for row in rows}
    standard = model.calibration.standard
    near = [row for row in rows if row[2] is not None]
    best = nlargest(budget.promising, rows, key=lambda row: lists.scores.get(row[0], 0.0))
    best += nlargest(budget.promising, near, key=lambda row: standard(1 - (row[2] + row[3]) / 2))
    whole = {*(row[1] for row in best), *(document_of[chunk_id] for chunk_id in named)}
    terms = terms_of(query, lists.prefixes)
    is_title = len(terms) <= MAX_TITLE_WORDS
    matches = match_terms(snapshot, terms, lists.alternatives, document_of, whole, titles=is_title)
    lists, matches = without_other_words(snapshot, lists, matches, document_of)
    lists, matches = weigh_addresses(snapshot, query.text, lists, matches, document_of)
    readable = 0.0 if query.is_exact else 1.0
    if model.is_english and readable:
        readable = readable_share(query.words_to_embed)
    return Candidates(query, model, nearest, lists, rows, matches, frozenset(named), readable)


def _named(snapshot: Snapshot, query: Query, ranges: Ranges, filters: Filters) -> list[int]:
    """First passages of the documents whose path ends with the query."""
    path = query.text.strip()
    if query.must or query.must_not or len(path) > MAX_PATH:
        return []
    rows = snapshot.connection.tuples(
        "first_chunks_named", key=page_key(path), ranges=json.dumps(ranges), limit=MAX_NAMED
    )
    return [row[0] for row in rows if passes(filters, row[0])]


def terms_of(query: Query, prefixes: Mapping[str, str] = NOTHING) -> list[Term]:
    """The distinct terms of a query, stop words only if alone; `prefixes`: MATCH by prefix."""
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
    """Cached for several files."""
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
    """The terms' document frequencies, and which candidates (`document_of`) and `whole` documents
    contain them; with `titles` also whose title and headings contain all."""
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
        # Their weight depends on the exact count.
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
        dict(snapshot.connection.tuples("count_chunks_of", document_ids=sorted(whole))),
        frequencies,
        set.intersection(*(holding[match] for match in in_titles)) if in_titles else frozenset(),
    )


def _chunks_holding(
    snapshot: Snapshot, matches: Sequence[str], chunk_ids: Collection[int]
) -> dict[str, set[int]]:
    """Which of some chunks contain each expression."""
    holding: dict[str, set[int]] = {match: set() for match in matches}
    if not (holding and chunk_ids):
        return holding
    rows = snapshot.connection.tuples(
        "expressions_held",
        matches=json.dumps([*holding]),
        chunk_ids=json.dumps([*chunk_ids]),
        # So that a search in a part of the file does not read the rest.
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
    """By expression, its part of the chunks' bm25 scores, and its approximate frequency in `whole`
    documents: bm25 over idf, as if passages had mean length, which most have."""
    scores: dict[str, dict[int, float]] = {match: {} for match in idf}
    frequencies: dict[str, dict[int, float]] = {match: {} for match in idf}
    ids = [*document_of, *whole]
    rows = snapshot.connection.tuples(
        "chunk_scores",
        matches=json.dumps([*idf]),
        chunk_ids=json.dumps([*document_of]),
        document_ids=json.dumps(sorted(whole)),
        most=MAX_SIBLINGS,
        first=min(ids, default=0),
        last=max(ids, default=0),
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


MIN_ACRONYM, MAX_ACRONYM = 3, 4  # letters; a longer unknown word in s is usually a plural
MAX_PLURAL = 20_000  # of the English vocabulary's words: `aw` and `io` come later
MAX_READ = 20  # passages, best by words: reading and comparing one takes .03 ms
_ASKED = re.compile(r"\w[./]\w")  # the query names an address or a file

_ADDRESSES = tuple(  # one by one, each is searched by its first signs: four times as fast
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"\]\((?:<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)",  # [text](address)
        r"\]:[ \t]+\S+$",  # [name]: address
        r"\[\[[^\[\]|\n]+(?:\||\]\[)",  # [[address|text]], of Org [[address][text]]
        r"<[^<>\n]+>`_",  # `text <address>`_
        r"href=(?:\"[^\"\n]*\"|'[^'\n]*')",
    )
)
_WORDS = re.compile(r'"([^"]+)"(\*?)')  # an expression of adjacent words


def without_other_words(
    snapshot: Snapshot, lists: WordLists, matches: TermMatches, document_of: Mapping[int, int]
) -> tuple[WordLists, TermMatches]:
    """Both without passages that lack a word's exact form, if any passage has it."""
    match_of = {term.match.strip('"'): term.match for term in matches.terms}
    chunks = {word: matches.postings[match].chunks for word, match in match_of.items()}
    for word, right in _chunks_as_typed(snapshot.connection, chunks).items():
        wrong = chunks[word] - right
        if not (right and wrong):
            continue
        match = match_of[word]
        scores, frequencies = matches.scores.get(match, {}), matches.frequencies.get(match, {})
        documents = {document_of[key] for key in wrong} - {document_of[key] for key in right}
        left = {
            key: score - scores.get(key, 0.0) * (key in wrong)
            for key, score in lists.scores.items()
        }
        lists = lists._replace(
            scores=dict(sorted(left.items(), key=lambda row: -row[1])),
            literal=[key for key in lists.literal if key not in wrong],
        )
        postings = matches.postings[match]._replace(chunks=frozenset(right))
        of_match = {key: scores[key] for key in scores.keys() - wrong}
        often = {key: frequencies[key] for key in frequencies.keys() - documents}
        matches = matches._replace(
            postings={**matches.postings, match: postings},
            scores={**matches.scores, match: of_match},
            frequencies={**matches.frequencies, match: often},
            titled={*matches.titled} - wrong,
        )
    return lists, matches


def weigh_addresses(
    snapshot: Snapshot,
    text: str,
    lists: WordLists,
    matches: TermMatches,
    document_of: Mapping[int, int],
) -> tuple[WordLists, TermMatches]:
    """Both with less weight for what occurs only in addresses of links."""
    if _ASKED.search(text):
        return lists, matches
    phrase = quote(unicodedata.normalize("NFKC", text))
    holding = {phrase: frozenset(lists.literal)}
    holding |= {match: postings.chunks for match, postings in matches.postings.items()}
    best = [*islice((key for key in lists.scores if key in document_of), MAX_READ)]
    by_address = _chunks_by_address(snapshot.connection, holding, best)
    if not by_address:
        return lists, matches
    left, frequencies = {**lists.scores}, {**matches.frequencies}
    for match in by_address.keys() & matches.scores.keys():
        idf = fts5_idf(matches.postings[match].df, matches.sizes.passages)
        of_match = frequencies[match] = {**frequencies[match]}
        for chunk_id in by_address[match] & matches.scores[match].keys():
            score, document_id = matches.scores[match][chunk_id], document_of[chunk_id]
            if chunk_id in left:
                left[chunk_id] -= (1 - ADDRESS) * score
            if document_id in of_match:
                less = frequency_of(score / idf) - frequency_of(ADDRESS * score / idf)
                of_match[document_id] = max(of_match[document_id] - less, 0.0)
    in_address = by_address.get(phrase, ())
    return lists._replace(
        scores=dict(sorted(left.items(), key=lambda row: -row[1])),
        literal=[key for key in lists.literal if key not in in_address],
        typed=lists.typed.difference(in_address),
    ), matches._replace(frequencies=frequencies, by_address=by_address)


def _chunks_as_typed(
    connection: Connection, chunks: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """For each word whose form matters, those of its chunks that contain it as typed."""
    patterns = {word: version for word in chunks if (version := version_pattern(word))}
    plurals = {word: word.lower() for word in chunks if _is_no_plural(word)}
    forms = [form for word in plurals.values() for form in (word, word[:-1])]
    held = stems_of_words(connection, forms) if forms else {}
    patterns |= {
        word: re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", re.IGNORECASE)
        for word, folded in plurals.items()
        if {folded, folded[:-1]} <= held.keys()
    }
    return {
        word: {
            chunk_id
            for chunk_id, _, *texts in bodies(connection, chunks[word])
            if any(map(pattern.search, texts))
        }
        for word, pattern in patterns.items()
    }


@lru_cache(maxsize=1024)
def _is_no_plural(word: str) -> bool:
    """Whether a final s belongs to the word: `lfs`, `AWS`, `iis`, `status`."""
    stem = word[:-1].lower()
    if word[-1:] not in "sS" or len(word) < MIN_ACRONYM or not word.isascii() or not word.isalnum():
        return False
    if word.isupper() or not stem.isalpha():
        return True
    place = english_number(stem)
    is_word = place is not None and place < MAX_PLURAL
    return not is_word and (len(word) <= MAX_ACRONYM or stem[-1] in "siu")


def _chunks_by_address(
    connection: Connection, holding: Mapping[str, frozenset[int]], among: Collection[int]
) -> dict[str, set[int]]:
    """For each expression, those of its chunks that contain it only in addresses of links."""
    sought: dict[str, str] = {}  # by expression, its stems between blanks
    for match, chunk_ids in holding.items():
        if (words := _WORDS.fullmatch(match)) and not chunk_ids.isdisjoint(among):
            stems = " ".join(connection.stems(words[1]))
            sought[match] = f" {stems}" if words[2] else f" {stems} "
    by_address: dict[str, set[int]] = {}
    for chunk_id, *texts in connection.tuples("texts_with_links", chunk_ids=[*among]):
        text = whole = "\n".join(texts)
        for pattern in _ADDRESSES:
            text = pattern.sub(" | ", text)
        row = "" if text == whole else f" {' '.join(connection.stems(text))} "
        for match, stems in sought.items():
            if row and chunk_id in holding[match] and stems not in row:
                by_address.setdefault(match, set()).add(chunk_id)
    return by_address
