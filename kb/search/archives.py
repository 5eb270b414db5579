"""Searches archives by document: exact matches, then misspelt and longer words."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kb.search.candidates import FileQuery
from kb.search.evidence import Hit
from kb.search.families import OfDocuments, best_hits
from kb.search.files import SearchedFile, Snapshot, Together, existing_words, slices
from kb.search.filters import Filters, filters_by_document
from kb.search.highlight import excerpts, marked, spans
from kb.search.keywords import keyword_hits
from kb.search.occurrences import (
    MAX_WORDS,
    documents_holding,
    documents_matching,
    match_of_word,
)
from kb.search.query import Query, parse_query, quote
from kb.search.ranking import FUZZY_SCORE, MIN_SCORE_WITHOUT_WORDS, shown
from kb.search.results import nearest_snippets
from kb.search.rows import load_rows
from kb.search.run import HitsOfFile, Scope, SearchRequest, run
from kb.search.typos import ONE_EDIT_FROM, prefixed, variants
from kb.store.connection import Connection, Row
from kb.store.contents import (
    ChunkRange,
    Ranges,
    collection_range,
    count_documents,
    documents_of_chunks,
    documents_shown,
)

NO_ARCHIVE = "There is no archive yet: add one with `kb add FOLDER --kind archive`."
DEPTH = 200  # passages of each kind of match
MAX_LONGER_WORDS = 50  # that begin with a word of the query

# A document, its best passage, its score, and whether it matches by similar words only.
Ranked = tuple[int, int, float, bool]
Near = Mapping[str, Sequence[str]]  # by word of a query, similar words of the file


@dataclass(frozen=True, slots=True)
class ArchiveHit:
    """A document of an archive, and why it is an answer."""

    row: Row  # of the statement archive_documents
    passage: Row  # its best, of the statement hit_rows
    score: float
    is_similar: bool  # it matches by misspelt or longer words only
    highlights: list[tuple[str, list[str]]]  # fields, each with its snippets with <mark>


FoundIn = tuple[SearchedFile, ArchiveHit]


class _ArchivesPolicy(OfDocuments):
    """Documents with a word of the query first, then those with only similar words. Operators apply
    to the whole document. With `fuzzy`, nearness in meaning suffices too."""

    max_hits = DEPTH
    keeps_filters = True
    corrects_foreign = True

    def __init__(self, *, fuzzy: bool) -> None:
        self.corrects = fuzzy

    def parse(self, text: str) -> Query:
        return parse_query(text).without_stop_words()

    def scope(
        self, file: SearchedFile, snapshot: Snapshot, query: Query, request: SearchRequest
    ) -> Scope | None:
        archives = file.names.collections(snapshot.connection, ("archive",))
        if not archives or query.asks_for_nothing:
            return None
        return Scope([collection_range(row["collection_id"]) for row in archives])

    def filters(
        self, snapshot: Snapshot, query: Query, scope: Scope, request: SearchRequest
    ) -> tuple[Query, Filters, str]:
        return query, filters_by_document(snapshot.connection, query, scope.ranges), ""

    def rows(
        self, _: SearchedFile, connection: Connection, request: SearchRequest, part: HitsOfFile
    ) -> Sequence[ArchiveHit]:
        query = self.parse(request.text)
        near = _near_words(connection, query) if self.corrects else {}
        ranked = _ranked(Snapshot(connection), query, part[0], near, part[1])[: request.limit]
        return _shown(connection, query, near, ranked)


def search_archives(
    files: Sequence[SearchedFile], text: str, *, fuzzy: bool, limit: int
) -> tuple[list[FoundIn], str]:
    """The documents of some files that answer a query, best first, each with its file; a notice."""
    policy = _ArchivesPolicy(fuzzy=fuzzy)
    result = run(files, SearchRequest(text, limit=limit), policy)
    hits = [*zip(result.files, result.rows, strict=True)]
    if not hits:
        together = Together(files)
        with together.read():
            has_archive = any(together.each(_has_archive).values())
        asks = has_archive and not policy.parse(text).asks_for_nothing
        return [], result.notice if asks else "" if has_archive else NO_ARCHIVE
    if len(files) > 1:
        hits = _merged(hits)[:limit]
    sentences = {
        file: iter(_with_nearest_sentences(file, query, [hit for of, hit in hits if of is file]))
        for file, query in result.queries.items()
    }
    return [(file, next(sentences[file])) for file, _ in hits], result.notice


def _has_archive(file: SearchedFile, connection: Connection) -> bool:
    return bool(file.names.collections(connection, ("archive",)))


def _merged(hits: Sequence[FoundIn]) -> list[FoundIn]:
    """The best of several files first; what matches by similar words stays behind the rest."""

    def order(pair: FoundIn) -> tuple[Any, ...]:
        hit = pair[1]
        return hit.is_similar, -hit.score, hit.row["collection"], hit.row["path"]

    merged: list[FoundIn] = []
    ceiling = 1.0
    for file, hit in sorted(hits, key=order):
        ceiling = min(ceiling, hit.score)
        merged.append((file, replace(hit, score=ceiling)))
    return merged


def _with_nearest_sentences(
    file: SearchedFile, query: Query, hits: Sequence[ArchiveHit]
) -> list[ArchiveHit]:
    """The hits; those by meaning alone get the sentence nearest to the query."""
    unmarked = [hit.passage for hit in hits if not hit.highlights]
    passages = [(row["content"], [row["title"], row["heading"] or ""]) for row in unmarked]
    sentences = iter(nearest_snippets(file.model, query, passages))
    return [
        replace(hit, highlights=[("content", [html.escape(sentence, quote=False)])])
        if not hit.highlights and (sentence := next(sentences))
        else hit
        for hit in hits
    ]


def _ranked(
    snapshot: Snapshot, query: Query, file_query: FileQuery, near: Near, hits: Sequence[Hit]
) -> list[Ranked]:
    """Documents with their best passage: exact, then near in meaning, then fuzzy."""
    connection = snapshot.connection
    match = " OR ".join(quote(word) for words in near.values() for word in words)
    loose = keyword_hits(snapshot, match, file_query.ranges, DEPTH, file_query.filters)
    exact, alike = _documents_by_word(connection, query, file_query.ranges, near)
    holding = set().union(*exact)
    score_of = snapshot.model.calibration.score
    close = {
        hit.document_id
        for hit in hits
        if near and hit.distance is not None and score_of(hit.distance) >= MIN_SCORE_WITHOUT_WORDS
    }
    chosen: list[Ranked] = [
        (hit.document_id or 0, hit.chunk_id, hit.score, False)
        for hit in best_hits(hits)
        if hit.document_id in holding or hit.document_id in close
    ]
    if not loose:
        return chosen
    ceiling = min((score for *_, score, _ in chosen), default=1.0)
    shares = _shares(connection, exact, alike, file_query.ranges)
    seen = {document_id for document_id, *_ in chosen} | holding
    document_of = documents_of_chunks(connection, loose)
    similar: dict[int, Ranked] = {}
    for chunk_id in loose:
        if (document_id := document_of[chunk_id]) not in seen:
            score = shown(min(ceiling, FUZZY_SCORE * shares.get(document_id, 0.0)))
            similar.setdefault(document_id, (document_id, chunk_id, score, True))
    return [*chosen, *sorted(similar.values(), key=lambda ranked: (-ranked[2], ranked[0]))]


def _documents_by_word(
    connection: Connection, query: Query, ranges: Ranges, near: Near
) -> tuple[list[set[int]], list[set[int]]]:
    """For each operand, the documents that contain it, and those with only a similar word."""
    operands = [*dict.fromkeys((*query.must, *query.terms))]
    plain = [match_of_word(connection, operand) for operand in operands]
    likely = [[*map(quote, near.get(operand.text, ()))] for operand in operands]
    either = [[" OR ".join(part) for part in slices(words, MAX_WORDS)] for words in likely]
    matches = [*filter(None, plain), *(match for parts in either for match in parts)]
    documents = documents_matching(connection, matches, ranges)
    exact = [
        documents[match] if match else documents_holding(connection, operand, ranges)
        for operand, match in zip(operands, plain, strict=True)
    ]
    alike = [set().union(*(documents[match] for match in parts)) for parts in either]
    return exact, [similar - same for same, similar in zip(exact, alike, strict=True)]


def _shares(
    connection: Connection, exact: Sequence[set[int]], alike: Sequence[set[int]], ranges: Ranges
) -> dict[int, float]:
    """Each document's share of the query's words, by rarity; similar words count."""
    cached: dict[ChunkRange, int] = connection.cached("documents of ranges")
    cached |= {r: count_documents(connection, r[0] >> 32) for r in ranges if r not in cached}
    total = max(1, sum(cached[within] for within in ranges))
    weights = [
        math.log(1 + total / max(1, len(same) or len(similar)))
        for same, similar in zip(exact, alike, strict=True)
    ]
    shares: dict[int, float] = {}
    for same, similar, weight in zip(exact, alike, weights, strict=True):
        for document_id in same | similar:
            shares[document_id] = shares.get(document_id, 0.0) + weight
    return {document_id: share / sum(weights) for document_id, share in shares.items()}


def _near_words(connection: Connection, query: Query) -> dict[str, list[str]]:
    """For each bare word of a query, similar words of the file: typos and longer words."""
    texts = [operand.text for operand in query.terms]
    terms = {text: [term for *_, term in connection.tokenize(text)] for text in texts}
    typed = {term for of_text in terms.values() for term in of_text}
    alike = variants(connection, typed)
    longer = prefixed(connection, [word for word in typed if len(word) >= ONE_EDIT_FROM])
    near: dict[str, list[str]] = {}
    for text, of_text in terms.items():
        words: list[str] = []
        for term in of_text:
            words += [variant.word for variant in alike[term]]
            words += sorted(longer.get(term, ()))[:MAX_LONGER_WORDS]
        near[text] = list(dict.fromkeys(words))
    return near


def _shown(
    connection: Connection, query: Query, near: Near, ranked: Sequence[Ranked]
) -> list[ArchiveHit]:
    if not ranked:
        return []
    rows = documents_shown(connection, (document_id for document_id, *_ in ranked))
    passages = load_rows(connection, [chunk_id for _, chunk_id, *_ in ranked])
    existing = existing_words(connection, {*near}) if near else set()
    # A word that the file lacks was replaced: its replacements are what matched.
    meant = {text: words for text, words in near.items() if text not in existing}
    documents = []
    for (document_id, _, score, is_similar), passage in zip(ranked, passages, strict=True):
        row = rows[document_id]
        highlights: list[tuple[str, list[str]]] = []
        for name, text in (
            ("title", row["title"]),
            ("content", passage["content"]),
            ("query", row["query"] or ""),
        ):
            places = spans(connection, text, query, variants=meant)
            if not places and near:
                places = spans(connection, text, query, variants=near)
            if places:
                pieces = excerpts(text, places) if name == "content" else [marked(text, places)]
                highlights.append((name, pieces))
        documents.append(ArchiveHit(row, passage, score, is_similar, highlights))
    return documents
