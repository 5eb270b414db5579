"""Search archives document by document: exact matches, then misspelt and longer words."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kb.model_in_use import ModelInUse, calibration_of, has_english_model
from kb.models.embedder import BUNDLED_CALIBRATION
from kb.search.candidates import matching_any
from kb.search.highlight import excerpts, marked, spans
from kb.search.hybrid import search
from kb.search.keywords import keyword_hits
from kb.search.operators import Filters, document_filters, documents_holding
from kb.search.query import Query, parse_query, quote
from kb.search.ranking import FUZZY_SCORE, LEAST_SCORE_WITHOUT_WORDS, shown
from kb.search.rows import load_rows
from kb.search.snippet import nearest_snippets
from kb.search.typos import ONE_EDIT_FROM, correct, is_known, prefixed, variants
from kb.store.chunks import chunks_of_documents, documents_of_chunks
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, documents_shown
from kb.store.ids import ChunkRange, collection_range
from kb.store.names import Names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_ARCHIVE = "There is no archive yet: add one with `kb add FOLDER --kind archive`."
CHUNK_DEPTH = 200  # passages that are looked at for each kind of match
MOST_LONGER_WORDS = 50  # that a word of the query is the beginning of


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """One document of an archive and why it was found."""

    row: Row  # of the statement archive_documents
    passage: Row  # its best passage: of the statement hit_rows
    score: float  # 0 to 1
    highlights: list[tuple[str, list[str]]]  # field and its snippets with <mark>


@dataclass(frozen=True, slots=True)
class _Passage:
    """A document's best passage."""

    chunk_id: int
    score: float


def search_archives(
    model: ModelInUse, names: Names, text: str, *, fuzzy: bool, limit: int
) -> tuple[list[FoundDocument], str]:
    """The documents that a query finds, best first, and what to tell the reader.

    What holds a word of the query comes first, then what holds only words near it. Operators
    hold for the whole document. A document that is near in meaning alone is found with `fuzzy`.
    """
    query = parse_query(text).without_stop_words()
    with model.database.read() as connection:
        if not names.collections(connection, ("archive",)):
            return [], NO_ARCHIVE
        if query.asks_for_nothing:
            return [], ""
        corrected, said = correct(connection, query, even_foreign=True) if fuzzy else (query, "")
    vectors, notice = model.try_embed_queries([corrected.words_to_embed])
    with model.database.read() as connection:
        archives = names.collections(connection, ("archive",))
        ranges = [collection_range(row["collection_id"]) for row in archives]
        near = _near_words(connection, query) if fuzzy else {}
        found = _ranked(connection, query, corrected, vectors[0], ranges, near, limit)
        documents = _shown(connection, query, near, found)
    return (
        _with_nearest_sentences(model, corrected, documents),
        " ".join(filter(None, (query.notice, said, notice))),
    )


def _with_nearest_sentences(
    model: ModelInUse, query: Query, found: Sequence[FoundDocument]
) -> list[FoundDocument]:
    """What is found by its meaning alone, with the sentence that is nearest to the query."""
    unmarked = [one for one in found if not one.highlights]
    passages = [(one.passage["content"], _headings(one.passage)) for one in unmarked]
    near = {
        id(one): sentence
        for one, sentence in zip(unmarked, nearest_snippets(model, query, passages), strict=True)
    }
    return [
        replace(one, highlights=[("content", [html.escape(text, quote=False)])])
        if (text := near.get(id(one)))
        else one
        for one in found
    ]


def _headings(passage: Row) -> list[str]:
    """What is known of a passage beside its text and need not be repeated in it."""
    return [passage["title"], passage["heading"] or ""]


def _ranked(
    connection: Connection,
    query: Query,
    corrected: Query,
    vector: NDArray[np.float32] | None,
    ranges: Sequence[ChunkRange],
    near: Mapping[str, Sequence[str]],
    limit: int,
) -> list[tuple[int, _Passage]]:
    """Document ids with their best passage: exact ones, those close in meaning, fuzzy ones."""
    filters = _chunk_filters(connection, query, ranges)
    calibration = calibration_of(connection) or BUNDLED_CALIBRATION
    hits = search(
        connection,
        corrected,
        vector,
        ranges=ranges,
        limit=CHUNK_DEPTH,
        filters=filters,
        calibration=calibration,
        english_model=has_english_model(connection),
    )
    match = " OR ".join(quote(word) for words in near.values() for word in words)
    only, without = filters
    loose = keyword_hits(connection, match, ranges, CHUNK_DEPTH, only=only, without=without)
    holding, coverage = _coverage(connection, query, ranges, near)
    document_of = documents_of_chunks(
        connection, {*(hit.chunk_id for hit in hits), *(chunk_id for chunk_id, _ in loose)}
    )
    close = {
        document_of[hit.chunk_id]
        for hit in hits
        if near
        and hit.distance is not None
        and calibration.score(hit.distance) >= LEAST_SCORE_WITHOUT_WORDS
    }
    best: dict[int, _Passage] = {}  # the hits fall in score, and so do these
    for hit in hits:
        best.setdefault(document_of[hit.chunk_id], _Passage(hit.chunk_id, hit.score))
    chosen = [item for item in best.items() if item[0] in holding or item[0] in close]
    ceiling = min((one.score for _, one in chosen), default=1.0)
    seen = {document_id for document_id, _ in chosen} | holding
    similar: dict[int, _Passage] = {}
    for chunk_id, _ in loose:
        document_id = document_of[chunk_id]
        if document_id not in seen:
            score = shown(min(ceiling, FUZZY_SCORE * coverage.get(document_id, 0.0)))
            similar.setdefault(document_id, _Passage(chunk_id, score))
    rest = sorted(similar.items(), key=lambda item: (-item[1].score, item[0]))
    return [*chosen, *rest][:limit]


def _coverage(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    near: Mapping[str, Sequence[str]],
) -> tuple[set[int], dict[int, float]]:
    """The documents that hold an operand, and each document's share of the query's words.

    The share is weighted by how rare an operand is; a word near it counts as well.
    """
    total = sum(count_documents(connection, first >> 32) for first, _ in ranges)
    holding: set[int] = set()
    weights: dict[int, float] = {}
    whole = 0.0
    for operand in dict.fromkeys((*query.must, *query.terms)):
        exact = documents_holding(connection, operand, ranges)
        words = near.get(operand.text, ())
        near_chunks = matching_any(connection, words, ranges)
        like = set(documents_of_chunks(connection, near_chunks).values()) - exact
        weight = math.log(1 + max(1, total) / max(1, len(exact) or len(like)))
        whole += weight
        for document_id in exact:
            weights[document_id] = weights.get(document_id, 0.0) + weight
        for document_id in like:
            weights[document_id] = weights.get(document_id, 0.0) + weight
        holding |= exact
    return holding, {document_id: value / whole for document_id, value in weights.items()}


def _chunk_filters(connection: Connection, query: Query, ranges: Sequence[ChunkRange]) -> Filters:
    """The operators' documents as the chunks that may be found, or that may not."""

    def chunks(document_ids: set[int] | None) -> set[int] | None:
        if document_ids is None:
            return None
        return set(chunks_of_documents(connection, sorted(document_ids)))

    only, without = document_filters(connection, query, ranges)
    return chunks(only), chunks(without)


def _near_words(connection: Connection, query: Query) -> dict[str, list[str]]:
    """For each bare word of a query the words of the file near it: typos and longer words."""
    near: dict[str, list[str]] = {}
    for operand in query.terms:
        words: list[str] = []
        for _, _, word in connection.tokenize(operand.text):
            words += [one.word for one in variants(connection, word)]
            if len(word) >= ONE_EDIT_FROM:
                words += sorted(prefixed(connection, word))[:MOST_LONGER_WORDS]
        near[operand.text] = list(dict.fromkeys(words))
    return near


def _shown(
    connection: Connection,
    query: Query,
    near: Mapping[str, Sequence[str]],
    found: Sequence[tuple[int, _Passage]],
) -> list[FoundDocument]:
    rows = documents_shown(connection, (document_id for document_id, _ in found))
    passages = {
        row["document_id"]: row for row in load_rows(connection, [one.chunk_id for _, one in found])
    }
    # A word that the file does not hold was taken for others: those are what matched.
    meant = {text: words for text, words in near.items() if not is_known(connection, text)}
    result = []
    for document_id, one in found:
        row, passage = rows[document_id], passages[document_id]
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
        result.append(FoundDocument(row, passage, one.score, highlights))
    return result
