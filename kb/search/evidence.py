"""What is known of each candidate of all files, which `merge` brings into one order.

Evidence is a candidate's share of the query's words, its nearness, its script. A term's
information is its idf: the fewer passages contain it, the more it says. It is
log(1 + (N - n + 0.5) / (n + 0.5)) for n of N passages. A passage's share of a query is the summed
information of its terms, divided by that of all terms. Rarity, what is near to the best, and the
background are computed from the candidates of all files together, so that scores are comparable.

What is near to the best passages is near to the query too (Rocchio 1971). The vectors of the
top passages are added to the query's, and each candidate's nearness is that to the sum,

    q' = q + 0.2 v,  v the sum of the three best passages' vectors, divided by three.

Cosines suffice for this; they are first converted to the packaged English model's scale. Chosen
and measured in docs/decisions/0023-feedback-and-common-words.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from kb.models.embedder import Floats
from kb.models.tokens import english_number
from kb.search.candidates import (
    DEPTH,
    NOTHING,
    Budget,
    Candidates,
    FileQuery,
    Term,
    TermMatches,
    candidates,
)
from kb.search.files import Snapshot, max_df
from kb.search.filters import Filters
from kb.search.query import Operand, Query, says_little, scripts_of_query
from kb.search.ranking import (
    ADDRESS,
    APART,
    COMMON,
    LENGTH_WEIGHT,
    NEAR,
    SATURATION,
    Evidence,
    Expected,
    expected,
    fts5_idf,
    rank,
    script_fit,
    shown,
    support,
)
from kb.store.contents import ChunkRange, documents_of_chunks
from kb.text.terms import is_unspaced, words as split_words

SATURATING = 1.5  # summed idf (nats) that suffices: that of a term in a fifth of the passages
MIN_PASSAGES = 100  # a smaller file lacks most of the text that could make a term frequent
MIN_TELLING = 0.25  # so that passages with very common words still rank before the others
FEEDBACK = 3  # passages added to the query; two or four gain less
FEEDBACK_SHARE = 0.2  # of their mean; with 0.25 SciFact loses
EVERYDAY = 10_000  # the English vocabulary starts with names of signs and the commonest words
_EMOJI = re.compile(r'"u[0-9a-f]{4,6}"')
_CONTRACTION = re.compile(r"\w['’](?!s\b)\w")
_AROUND_WORDS = "\"*'`.,;:!?()[]{}<>"
_COSINE = Evidence._fields.index("cosine")


class CorpusStatistics(NamedTuple):
    """How frequent expressions are in all files searched together."""

    passages: int
    df: Mapping[str, int]  # the document frequency of each expression
    # Those in so many passages that they say next to nothing, and absent emoji: decoration.
    common: Collection[str]
    idf: Mapping[str, float]  # FTS5's, of each expression; 0 for absent emoji
    mean_length: float  # of a document, in passages


class Coverage(NamedTuple):
    greatest_score: float = 0.0  # the maximum of the query's bm25 scores
    held: Mapping[int, float] = NOTHING  # the share by chunk id; 0 if missing
    rarity: float = 0.0  # the query's idf as a multiple of that of a term in one passage
    telling: float = 1.0  # less if very many passages have the query's terms, least for stop words
    # By chunk id, the factor from a bm25 score of this file to one of all files; 1 if missing.
    weight: Mapping[int, float] = NOTHING


def evidence_of(files: Sequence[Candidates]) -> list[list[Evidence]]:
    """The evidence of each candidate, by file."""
    corpus = corpus_statistics([file.matches for file in files])
    evidence = [_evidence(file, corpus) for file in files]
    alike: dict[object, list[int]] = {}  # files of one model, whose vectors are comparable
    for number, file in enumerate(files):
        alike.setdefault((file.model, file.readable), []).append(number)
    for numbers in alike.values():
        first = files[numbers[0]]
        fed = iter(
            fed_back(
                [candidate for number in numbers for candidate in evidence[number]],
                [row[-1] for number in numbers for row in files[number].rows],
                first.readable,
                first.model.calibration.standard,
            )
        )
        for number in numbers:
            evidence[number] = list(islice(fed, len(evidence[number])))
    return evidence


def absent_words(files: Sequence[Candidates]) -> tuple[list[str], float]:
    """The words of a query that no passage contains, and their share of its information. Everyday
    words count only if no word occurs: people say the same in others. A word with a likely
    replacement is present, and so is a name whose parts all are; with a path asked for, all are."""
    has_passages = any(file.matches.sizes.passages for file in files)
    if not has_passages or any(file.named for file in files):
        return [], 0.0
    matches = [file.matches for file in files]
    terms = {term.match: term for file in matches for term in file.terms}
    held = {match for file in matches for match, postings in file.postings.items() if postings.df}
    absent = [
        term
        for match, term in terms.items()
        if match not in held
        and held.isdisjoint(term.near)
        and not (term.parts and held.issuperset(term.parts))
        and _is_word(match)
    ]
    if len(absent) < len(terms):
        absent = [term for term in absent if not _is_everyday(term.match)]
    if not absent:
        return [], 0.0
    corpus = corpus_statistics(matches)
    weights = {
        match: _weight(term, corpus.df, corpus.passages)
        for match, term in terms.items()
        if match not in corpus.common
    }
    share = sum(weights.get(term.match, 0.0) for term in absent) / (sum(weights.values()) or 1.0)
    return [term.match.strip(_AROUND_WORDS) for term in absent], share


def corpus_statistics(files: Sequence[TermMatches]) -> CorpusStatistics:
    df: dict[str, int] = {}
    for file in files:
        for match, postings in file.postings.items():
            df[match] = df.get(match, 0) + postings.df
    passages = sum(file.sizes.passages for file in files)
    common = {match for file in files for match, held in file.postings.items() if held.is_common}
    # What is common in no file may be common in all together.
    also = common | {match for match, count in df.items() if count >= max_df(passages)}
    if any(term.match not in also for file in files for term in file.terms):
        common = also
    nowhere = {match for match, count in df.items() if not count and _EMOJI.fullmatch(match)}
    idf = {match: fts5_idf(count, passages) for match, count in df.items()}
    documents = sum(file.sizes.documents for file in files)
    return CorpusStatistics(
        passages,
        df,
        common | nowhere,
        idf | dict.fromkeys(nowhere, 0.0),
        passages / max(1, documents),
    )


def coverage(file: TermMatches, corpus: CorpusStatistics) -> Coverage:
    """What one file's candidates contain; `corpus` covers all files, this one included."""
    if not (file.terms or file.ranked):
        return Coverage()
    passages, df = corpus.passages, corpus.df
    counted = [term for term in file.terms if term.match not in corpus.common] or file.terms
    information = matched = 0.0
    held: dict[int, float] = {}
    for term in counted:
        weight = _weight(term, df, passages)
        information += weight
        if not says_little(term.match.strip('"*')):
            matched += _weight(term, df, max(passages, MIN_PASSAGES))
        for chunk_id, share in _shares(term, file, df, passages).items():
            held[chunk_id] = held.get(chunk_id, 0.0) + weight * share
    greatest = sum(
        corpus.idf[match] * (COMMON if match in corpus.common else 1.0)
        for match in dict.fromkeys(file.ranked)
    )
    return Coverage(
        (SATURATION + 1) * greatest,
        {chunk_id: value / information for chunk_id, value in held.items()},
        information / _information(1, max(passages, 1)),
        max(min(matched / SATURATING, 1.0) ** 2, MIN_TELLING),
        _weight_elsewhere(file, corpus) if passages != file.sizes.passages else {},
    )


def document_shares(file: TermMatches, corpus: CorpusStatistics) -> Mapping[int, float]:
    """The candidates' documents' BM25 as a share of the maximum, without very common terms."""
    weights = {match: corpus.idf[match] for match in file.frequencies if match not in corpus.common}
    greatest = sum(weights.values())
    norms = {
        document_id: SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / corpus.mean_length)
        for document_id, length in file.lengths.items()
    }
    shares: dict[int, float] = {}
    for match, weight in weights.items():
        for document_id, count in file.frequencies[match].items():
            share = count / (count + norms[document_id])
            shares[document_id] = shares.get(document_id, 0.0) + weight * share / greatest
    return shares


def fed_back(
    candidates: Sequence[Evidence],
    vectors: Sequence[bytes],
    readable: float,
    standard: Callable[[float], float],
) -> list[Evidence]:
    """The candidates, in order, with their cosines to the sum of the query and the best; `vectors`
    are stored ones (int8) of one model, whose cosines `standard` converts to the packaged
    model's."""
    embedded = [
        number for number, candidate in enumerate(candidates) if candidate.cosine is not None
    ]
    ranked = [candidates[number] for number in embedded]
    if not (readable and ranked):
        return [*candidates]
    import numpy as np

    stored = b"".join([vectors[number] for number in embedded])
    matrix = np.frombuffer(stored, dtype=np.int8).reshape(len(ranked), -1).astype(np.float32)
    matrix /= np.maximum(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)), 1.0)[:, np.newaxis]
    supports = [support(candidate, readable) for candidate in ranked]
    best = nlargest(FEEDBACK, range(len(ranked)), key=supports.__getitem__)
    weight = len(best) / FEEDBACK  # fewer pull less: one passage is no evidence for itself
    near = [weight * standard(mean) for mean in (matrix @ matrix[best].mean(axis=0)).tolist()]
    of_query = weight * sum(ranked[number].cosine or 0.0 for number in best) / len(best)
    of_each_other = weight * sum(near[number] for number in best) / len(best)
    share = FEEDBACK_SHARE
    length = max(1 + 2 * share * of_query + share**2 * of_each_other, 1e-6) ** 0.5
    nearness = iter(near)
    return [
        candidate
        if candidate.cosine is None
        else Evidence._make(
            (
                *candidate[:_COSINE],
                (candidate.cosine + share * next(nearness)) / length,
                *candidate[_COSINE + 1 :],
            )
        )
        for candidate in candidates
    ]


def _evidence(file: Candidates, corpus: CorpusStatistics) -> list[Evidence]:
    """Evidence without feedback."""
    words, query = file.words, file.query
    if words is None:
        return []
    covered = coverage(file.matches, corpus)
    greatest = covered.greatest_score
    of_documents = document_shares(file.matches, corpus)
    standard = file.model.calibration.standard
    scripts, query_text = scripts_of_query(query), _plain(query.text)
    literal = set(words.literal) if len(split_words(query.text)) > 1 else set()
    of_document: dict[int, tuple[float, float | None, float, bool]] = {}
    evidence: list[Evidence] = []
    for row in file.rows:
        chunk_id, document_id, distance, document_distance, title, beginning, is_first, *_ = row
        if (shared := of_document.get(document_id)) is None:
            shared = of_document[document_id] = (
                of_documents.get(document_id, 0.0),
                None if document_distance is None else standard(1 - document_distance),
                script_fit(scripts, beginning),
                _plain(title) == query_text,
            )
        document_words, document_cosine, script, is_title = shared
        share = 0.0  # of the greatest bm25 score that the query can have
        if greatest > 0 and (score := words.scores.get(chunk_id)):
            share = score * covered.weight.get(chunk_id, 1.0) / greatest
        is_titled = chunk_id in file.matches.titled
        evidence.append(
            Evidence(
                chunk_id,
                document_id,
                share,
                document_words,
                covered.held.get(chunk_id, 0.0),
                covered.rarity,
                covered.telling,
                None if distance is None else standard(1 - distance),
                None if distance is None else document_cosine,
                script,
                is_titled,
                chunk_id in literal,
                chunk_id in words.typed,
                is_title,
                bool(is_first) and is_titled,
                chunk_id in file.named,
                distance,
            )
        )
    return evidence


def _is_word(match: str) -> bool:
    """Whether a reader would call an expression a word."""
    is_cut = is_unspaced(match) or _EMOJI.fullmatch(match) or _CONTRACTION.search(match)
    return bool(split_words(match)) and not is_cut


def _is_everyday(match: str) -> bool:
    parts = split_words(match.casefold())
    place = english_number(parts[0]) if len(parts) == 1 else None
    return place is not None and place < EVERYDAY


def _plain(title: str) -> str:
    """A title as compared with a query."""
    return " ".join(title.split()).rstrip(".?!").casefold()


def _weight_elsewhere(file: TermMatches, corpus: CorpusStatistics) -> Mapping[int, float]:
    """For each passage, its terms' weight in all files relative to FTS5's in its own."""
    here: dict[int, float] = {}
    there: dict[int, float] = {}
    for match in dict.fromkeys(file.ranked):
        postings = file.postings[match]
        if postings.is_common:  # its passages are not all known
            continue
        factor = corpus.idf[match] / fts5_idf(postings.df, file.sizes.passages)
        scores = file.scores[match]
        for chunk_id in postings.chunks:
            score = scores[chunk_id]
            here[chunk_id] = here.get(chunk_id, 0.0) + score
            there[chunk_id] = there.get(chunk_id, 0.0) + factor * score
    return {chunk_id: there[chunk_id] / score for chunk_id, score in here.items()}


def _weight(term: Term, df: Mapping[str, int], passages: int) -> float:
    count = df[term.match]
    if not count and term.near:
        count = max(df[match] for match in term.near)
    elif not count and term.parts:
        # No passage has the name as typed: it is searched by its words.
        return sum(_information(df[part], passages) for part in term.parts)
    return _information(count, passages)


def _shares(
    term: Term, file: TermMatches, df: Mapping[str, int], passages: int
) -> dict[int, float]:
    """How much of a term's information each passage contains, 0 to 1."""
    postings, by_address = file.postings, file.by_address
    count = df[term.match]
    shares: dict[int, float] = {}
    if term.near and not count:
        for match in term.near:
            shares |= dict.fromkeys(postings[match].chunks, NEAR)
        return shares
    parts = {part: _information(df[part], passages) for part in term.parts}
    whole = sum(parts.values())
    for part, weight in parts.items():
        for chunk_id in postings[part].chunks:
            share = (APART if count else 1.0) * weight / whole
            if chunk_id in by_address.get(part, ()):
                share *= ADDRESS
            shares[chunk_id] = shares.get(chunk_id, 0.0) + share
    shares |= dict.fromkeys(postings[term.match].chunks, 1.0)
    return shares | dict.fromkeys(by_address.get(term.match, ()), ADDRESS)


def _information(df: int, passages: int) -> float:
    df = min(df, passages)
    return math.log(1 + (passages - df + 0.5) / (df + 0.5))


MAX_DISTANCE = 2.0  # the greatest cosine distance
NEAR_A_VECTOR = Query("", (Operand("passage"),))  # with a word, as it must not be empty


class Hit(NamedTuple):
    """A passage of the answer: why, and how well it fits."""

    chunk_id: int
    document_id: int | None
    score: float  # orders the hits
    distance: float | None  # the true cosine; None while the chunk or the query has no vector
    keyword_rank: int | None = None  # from 1; None if the chunk is not in the list
    vector_rank: int | None = None
    evidence: Evidence | None = None  # None: the score comes from the distance alone
    is_by_words: bool = False  # every word is required, so meaning says nothing


def merge(
    files: Sequence[Candidates], limit: int | None, max_distance: float = MAX_DISTANCE
) -> list[tuple[int, Hit]]:
    """The best passages of all files, each with its file's number. `max_distance` below 2 drops
    passages whose distance is greater or unknown."""
    evidence = evidence_of(files)
    _, absent = absent_words(files)
    usual = expected(evidence)._replace(absent=absent)
    hits: list[tuple[int, Hit]] = []
    for number, (file, of_file) in enumerate(zip(files, evidence, strict=True)):
        if file.words is None:
            best = _by_meaning(file, limit, max_distance)
        else:
            near_enough = [
                passage
                for passage in of_file
                if max_distance >= MAX_DISTANCE
                or (passage.distance is not None and passage.distance <= max_distance)
            ]
            best = _by_evidence(file, near_enough, usual, limit)
        hits += [(number, hit) for hit in best]
    if len(files) > 1:
        hits.sort(key=lambda pair: -pair[1].score)  # stable: equal scores keep the files' order
    return hits[:limit]


def related_passages(
    snapshot: Snapshot,
    vector: Floats,
    within: ChunkRange,
    limit: int,
    *,
    without: set[int] | None = None,
) -> list[Hit]:
    """The passages of a range nearest to a vector, nearest first."""
    file_query = FileQuery(NEAR_A_VECTOR, vector, [within], Filters(without=without))
    answer = candidates(snapshot, file_query, Budget(limit, use_words=False))
    return [hit for _, hit in merge([answer], limit)]


def related_documents(
    snapshot: Snapshot,
    vector: Floats,
    within: ChunkRange,
    limit: int,
    *,
    without: set[int] | None = None,
) -> list[Hit]:
    """The documents of a range nearest to a vector, each by its nearest passage."""
    depth = max(DEPTH, limit * 10)
    while True:
        hits = related_passages(snapshot, vector, within, depth, without=without)
        document_of = documents_of_chunks(snapshot.connection, [hit.chunk_id for hit in hits])
        best: dict[int, Hit] = {}
        for hit in hits:
            best.setdefault(document_of[hit.chunk_id], hit)
        # All of the nearest passages may be one long document's: then look further.
        if len(best) >= limit or len(hits) < depth:
            return [*best.values()][:limit]
        depth *= 4


def _by_meaning(file: Candidates, limit: int | None, max_distance: float) -> list[Hit]:
    score = file.model.calibration.score
    return [
        Hit(chunk_id, None, shown(score(distance)), distance, vector_rank=rank)
        for rank, (chunk_id, distance) in enumerate(file.nearest[:limit], 1)
        if distance <= max_distance
    ]


def _by_evidence(
    file: Candidates, evidence: Sequence[Evidence], usual: Expected, limit: int | None
) -> list[Hit]:
    assert file.words is not None
    keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(file.words.scores, 1)}
    vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(file.nearest, 1)}
    is_exact = file.query.is_exact
    return [
        Hit(
            passage.chunk_id,
            passage.document_id,
            score,
            passage.distance,
            keyword_ranks.get(passage.chunk_id),
            vector_ranks.get(passage.chunk_id),
            passage,
            is_exact,
        )
        for passage, score in rank(evidence, file.readable, usual=usual, limit=limit)
    ]
