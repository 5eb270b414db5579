"""What a caller wants of a search, what each file does, and what differs between the families.

What a file does is a few steps, which `kb/search/run.py` combines. A remote file runs them on its
own machine (`kb/library/shards.py`): a step's arguments and results can be pickled, and a step
knows nothing of other files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from kb.model_in_use import ModelInUse
from kb.models.embedder import Floats
from kb.search.candidates import Budget, Candidates, FileQuery, candidates
from kb.search.evidence import MAX_DISTANCE, Hit
from kb.search.files import SearchedFile, Snapshot, existing_words
from kb.search.filters import NO_FILTERS, OPEN, DocumentFilter, Filters, enforced, within_filter
from kb.search.query import Query, bare_words, parse_query
from kb.search.rows import passage_rows
from kb.search.typos import correct
from kb.store.collections import Labels
from kb.store.connection import Connection, Row
from kb.store.contents import ChunkRange, Ranges, count_with_vector, has_waiting
from kb.store.vectors import current_model

HitsOfFile = tuple[FileQuery, Sequence[Hit]]  # what a file was asked, and its hits


class SearchRequest(NamedTuple):
    """What a caller wants of a search."""

    text: str
    collections: Sequence[str] = ()  # names; () for all
    limit: int = 10
    max_distance: float = MAX_DISTANCE  # below 2, drops rows whose distance is greater or unknown
    hybrid: bool = True  # False: meaning alone; operators are still enforced
    rerank: bool = False  # spend more time on a finer order of the best candidates
    needs_distances: bool = True  # False if nobody sees them: an exact query then needs no model
    documents: DocumentFilter = OPEN


class Scope(NamedTuple):
    """Where a file is searched."""

    ranges: Ranges
    called: Labels = {}  # noqa: RUF012 - never changed
    only: set[int] | None = None  # the chunks to search, if not all of the ranges


class Look(NamedTuple):
    """What a file says before it is searched."""

    names: set[str]  # the requested collections that it has
    words: set[str]  # the words of the queries that it has
    has_scope: list[bool]  # by request, whether it has anything to say
    model: Row | None  # its `current_model`
    passages: int  # its number of passages; 0 if it is the only file


class Proposal(NamedTuple):
    """The candidates of a file."""

    file_query: FileQuery  # without its vector
    candidates: Candidates
    notice: str
    waits: bool  # whether searched passages have no vector yet


class Policy:
    """What differs between the families of tools; this class is the documents family's."""

    budget = Budget()  # how much of each file becomes candidates
    max_hits = 0  # that rows are made of; 0: as many as rows are asked for
    is_of_documents = False  # a row is a document, at its best passage
    corrects = True  # misspelt words are also searched by their likely form
    corrects_foreign = False  # even if most of a query's words are unknown
    tells_doubts = True  # notices tell of missing vectors, absent words and unlikely rows
    folds = True  # copies and translations of a document are named in its row
    keeps_filters = False  # rows need what passes, which may be very much
    needs_all_files = False  # if one file does not answer, none does

    def parse(self, text: str) -> Query:
        return parse_query(text, tags=True)

    def scope(
        self, file: SearchedFile, snapshot: Snapshot, query: Query, request: SearchRequest
    ) -> Scope | None:
        """Where a file is searched; None if it has nothing to say."""
        names = request.collections
        ranges, called = file.names.ranges(snapshot.connection, names, some=True)
        return Scope(ranges, called) if called or not names else None

    def filters(
        self, snapshot: Snapshot, query: Query, scope: Scope, request: SearchRequest
    ) -> tuple[Query, Filters, str]:
        """The query as searched, what its operators let pass, and a notice."""
        connection = snapshot.connection
        query, filters, notice = enforced(connection, query, scope.ranges)
        filters, nothing = within_filter(
            connection, filters, request.documents, scope.ranges, scope.called
        )
        return query, filters, f"{notice} {nothing}".strip()

    def embed(
        self, model: ModelInUse, texts: Sequence[str], current: Row | None
    ) -> tuple[Sequence[Floats | None], str]:
        """The vector of each text, None if there is none, and why. Raises EmbeddingError if the
        family needs vectors."""
        return model.try_embed_queries(texts, current)

    def rows(
        self, _: SearchedFile, connection: Connection, request: SearchRequest, part: HitsOfFile
    ) -> Sequence[Any]:
        """The rows of one file's hits, a step."""
        file_query, hits = part
        return passage_rows(
            connection, hits, file_query.called, dates=request.documents.shows_dates
        )

    def look(
        self,
        file: SearchedFile,
        connection: Connection,
        requests: Sequence[SearchRequest],
        parsed: Sequence[Query],
        is_alone: bool,
    ) -> Look:
        """What a file says of some requests, a step."""
        snapshot = Snapshot(connection)
        names: set[str] = set()
        has_scope = []
        for query, request in zip(parsed, requests, strict=True):
            has_scope.append(self.scope(file, snapshot, query, request) is not None)
            for name in request.collections:
                if file.names.find(connection, name):
                    names.add(name)
        return Look(
            names,
            existing_words(connection, bare_words(parsed)) if self.corrects else set(),
            has_scope,
            current_model(connection),
            0 if is_alone else snapshot.sizes.passages,
        )

    def correct(
        self, _: SearchedFile, connection: Connection, parsed: Sequence[Query], words: set[str]
    ) -> list[tuple[Query, str]]:
        """The queries as `correct` gives them, a step; `words` are those that any file knows."""
        foreign = self.corrects_foreign
        return [correct(connection, query, words, even_foreign=foreign) for query in parsed]

    def notice_of(
        self, file: SearchedFile, connection: Connection, request: SearchRequest, query: Query
    ) -> str:
        """The notice about a query's operators, a step."""
        file_query = self._ask(file, Snapshot(connection), request, query)
        return file_query[1] if file_query else ""

    def propose(
        self,
        file: SearchedFile,
        connection: Connection,
        request: SearchRequest,
        tells_waiting: bool,
        part: tuple[Query, Floats | None, Budget],
    ) -> Proposal | None:
        """The candidates of a file, a step; None if it no longer has anything to say."""
        query, vector, budget = part
        snapshot = Snapshot(connection)
        pair = self._ask(file, snapshot, request, query)
        if pair is None:
            return None
        file_query, notice = pair
        answer = candidates(snapshot, file_query._replace(vector=vector), budget)
        cached: dict[ChunkRange, bool] = connection.cached("waiting ranges")
        ranges = file_query.ranges if tells_waiting else ()
        cached |= {r: has_waiting(connection, r) for r in ranges if r not in cached}
        if not self.keeps_filters:
            file_query = file_query._replace(filters=NO_FILTERS)
        return Proposal(file_query, answer, notice, any(cached[r] for r in ranges))

    def _ask(
        self, file: SearchedFile, snapshot: Snapshot, request: SearchRequest, query: Query
    ) -> tuple[FileQuery, str] | None:
        """What a file is asked, with what operators let pass, and a notice."""
        if (scope := self.scope(file, snapshot, query, request)) is None:
            return None
        query, filters, notice = self.filters(snapshot, query, scope, request)
        return FileQuery(query, None, scope.ranges, filters, scope.called), notice


def count_vectors(
    _: SearchedFile, connection: Connection, ranges: Collection[ChunkRange]
) -> tuple[int, int]:
    """As `count_with_vector`, a step."""
    return count_with_vector(connection, ranges)


DOCUMENTS = Policy()
