"""One search: requests -> queries -> candidates of each file -> one order -> rows.

    Query -> Candidates (by words, by meaning, by name) -> Evidence -> Hit -> row

Loading a model takes a second, so there are two reads: the first says what each file is asked, then
the queries get their vectors, and the second answers.

What a file does is a few steps of a `Policy`, which says what differs between the families. A
remote file runs them on its own machine (`kb/library/shards.py`): a step's arguments and results
can be pickled, and a step knows nothing of other files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from kb.errors import EmbeddingError, FileError, UsageError
from kb.model_in_use import ModelInUse
from kb.models.choose import may_be_english
from kb.models.embedder import Floats
from kb.models.rerank import CANDIDATES
from kb.models.tokens import english_number
from kb.search.candidates import Budget, Candidates, FileQuery, candidates
from kb.search.evidence import MAX_DISTANCE, Hit, absent_words, merge
from kb.search.files import LostReadError, SearchedFile, Snapshot, Together, existing_words
from kb.search.filters import NO_FILTERS, OPEN, DocumentFilter, Filters, enforced, within_filter
from kb.search.query import Query, bare_words, parse_query, says_little
from kb.search.ranking import RELEVANT
from kb.search.rows import MAX_FOLDED, embedded_texts, finer_order, fold, passage_rows
from kb.search.typos import FOREIGN_FROM, correct
from kb.store.collections import Labels
from kb.store.connection import Connection, Row
from kb.store.contents import WHOLE_FILE, ChunkRange, Ranges, count_with_vector, has_waiting
from kb.store.vectors import current_model
from kb.text.counted import counted, some_of
from kb.text.terms import words as words_of

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

    parse: Callable[[str], Query] = staticmethod(partial(parse_query, tags=True))

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
        connection, filters, notice, nothing = snapshot.connection, NO_FILTERS, "", ""
        if query.must or query.must_not or query.tags or query.tags_not:
            query, filters, notice = enforced(connection, query, scope.ranges)
        if not request.documents.is_open:
            filters, nothing = within_filter(
                connection, filters, request.documents, scope.ranges, scope.called
            )
        return query, filters, f"{notice} {nothing}".strip()

    # The vector of each text by a `ModelInUse` and its file's `current_model`, None if there is
    # none, and why. Raises EmbeddingError if the family needs vectors.
    embed: Callable[..., tuple[Sequence[Floats | None], str]] = staticmethod(
        ModelInUse.try_embed_queries
    )

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
        snapshot = Snapshot(connection)
        if (scope := self.scope(file, snapshot, query, request)) is None:
            return ""
        return self.filters(snapshot, query, scope, request)[2]

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
        if (scope := self.scope(file, snapshot, query, request)) is None:
            return None
        query, filters, notice = self.filters(snapshot, query, scope, request)
        file_query = FileQuery(query, vector, scope.ranges, filters, scope.called)
        answer = candidates(snapshot, file_query, budget)
        cached: dict[ChunkRange, bool] = connection.cached("waiting ranges")
        ranges = scope.ranges if tells_waiting else ()
        cached |= {r: has_waiting(connection, r) for r in ranges if r not in cached}
        kept = filters if self.keeps_filters else NO_FILTERS
        return Proposal(
            file_query._replace(vector=None, filters=kept),
            answer,
            notice,
            any(cached[r] for r in ranges),
        )


def count_vectors(
    _: SearchedFile, connection: Connection, ranges: Collection[ChunkRange]
) -> tuple[int, int]:
    """As `count_with_vector`, a step."""
    return count_with_vector(connection, ranges)


DOCUMENTS = Policy()


FileHit = tuple[SearchedFile, Hit]
WORDS_ALONE = "There are no embeddings yet: judged by words alone until `kb sync` has made some."
UNLIKELY = "No row reaches 0.7: there may be no answer here."
UNLIKELY_OF = 'No row for "{:.60}" reaches 0.7.'
NOT_ALL_COMPARED = "Very many passages may fit the operators: not all of them were compared."
MOSTLY = 0.5  # of a question's letters, which an English model can read
ENGLISH_WORDS = 20_000  # of the English vocabulary: later ones are names and pieces
READS_ENGLISH = (
    "The file's model reads English: a translation of the query into English finds more."
)


class SearchResult(NamedTuple):
    """The rows of a search, best first, and a notice for the reader."""

    rows: list[Any]
    hits: list[Hit]  # of each row; if rows are documents, of all of them
    files: list[SearchedFile]  # where each row comes from
    queries: dict[SearchedFile, Query]  # as each file was asked, with likely words added
    notice: str = ""

    def newest_first(self) -> SearchResult:
        """The rows, which are passages, by the dates of their documents."""
        dates = [row.get("date", "") for row in self.rows]
        order = sorted(range(len(dates)), key=dates.__getitem__, reverse=True)
        return self._replace(
            rows=[self.rows[number] for number in order],
            hits=[self.hits[number] for number in order],
            files=[self.files[number] for number in order],
        )


def run(
    files: Sequence[SearchedFile], request: SearchRequest, policy: Policy = DOCUMENTS
) -> SearchResult:
    """As `run_batch`, for one request; with the notice."""
    (result,), notice = run_batch(files, [request], policy)
    return result._replace(notice=notice)


def run_batch(
    files: Sequence[SearchedFile], requests: Sequence[SearchRequest], policy: Policy = DOCUMENTS
) -> tuple[list[SearchResult], str]:
    """The best rows of some files for each request, and one notice for all.

    Raises:
        CollectionNotFound: a name that no file has.
        EmbeddingError: there are no vectors, and a request is not hybrid.
        FileError: no file answers, or one does not and the policy needs all.
        ModelMismatchError: the first file's vectors come from another model than the requested one.
    """
    while True:
        search = _Search(files, requests, policy)
        together = search.together
        results: list[SearchResult] = []
        texts: list[list[str]] = []
        try:
            with together.read():
                search.plan()
            search.embed()
            with together.read():
                for number, request in enumerate(requests):
                    result = search.answer(number)
                    results.append(result)
                    texts.append(search.texts_to_rerank(result) if request.rerank else [])
                search.notice_vectors(results)
            break
        except LostReadError:  # each file raises it once
            continue
    if policy.needs_all_files and together.lost:
        raise FileError(" ".join(together.lost))
    search.notices += together.lost
    for number, request in enumerate(requests):
        if request.rerank:
            results[number] = search.rerank(results[number], texts[number], request.limit)
        if request.documents.sort == "date" and not policy.is_of_documents:
            results[number] = results[number].newest_first()
    return results, " ".join(filter(None, dict.fromkeys(search.notices)))


class _Search:
    """The state of a search: what each file is asked, and the notices."""

    def __init__(
        self, files: Sequence[SearchedFile], requests: Sequence[SearchRequest], policy: Policy
    ) -> None:
        self.together = Together(files)
        self.notices: list[str] = []
        self._policy = policy
        if any(request.limit < 0 for request in requests):
            raise UsageError("limit is a number of rows, 0 or more", field="limit")
        self._requests = [
            request._replace(collections=(request.collections,))
            if isinstance(request.collections, str)
            else request
            for request in requests
        ]
        self._parsed = [policy.parse(request.text) for request in requests]
        self._looks: dict[SearchedFile, Look] = {}
        # By file, the queries with likely words for unknown ones, and a notice about them.
        self._queries: dict[SearchedFile, list[tuple[Query, str]]] = {}
        self._is_by_words: list[bool] = []  # by request: it is answered without vectors
        self._vectors: dict[SearchedFile, list[Floats | None]] = {}
        self._problems: list[str] = []  # with vectors
        self._lacks_vectors = False
        self._by_meaning: dict[SearchedFile, set[ChunkRange]] = {}  # where vectors were compared
        self._some_wait = False  # passages there have no vector yet

    def plan(self) -> None:
        """Decide what each file is asked. Raises CollectionNotFound for a name that no file has."""
        policy, parsed, together = self._policy, self._parsed, self.together
        self._looks = together.each(policy.look, self._requests, parsed, len(together.files) == 1)
        words: set[str] = set()
        names: set[str] = set()
        for file, answer in self._looks.items():
            self._queries[file] = [*zip(parsed, repeat(""))]
            words |= answer.words
            names |= answer.names
        for request in self._requests:
            for name in request.collections:
                if name not in names:
                    together.refuse_name(name)
        if policy.corrects and bare_words(parsed) - words:
            self._queries = together.each(policy.correct, parsed, words)
        self._is_by_words = [self._needs_no_vector(number) for number in range(len(self._requests))]

    def embed(self) -> None:
        """Make the queries' vectors with each file's model, outside any read. Raises EmbeddingError
        if no file has them and they are needed."""
        are_needed = not all(request.hybrid for request in self._requests)
        for file in [*self.together.files]:
            texts = [
                query.words_to_embed
                for (query, _), is_by_words in zip(
                    self._queries[file], self._is_by_words, strict=True
                )
                if not is_by_words
            ]
            embedded: Sequence[Floats | None] = ()
            problem = ""
            try:
                if texts:
                    embedded, problem = self._policy.embed(
                        file.model, texts, self._looks[file].model
                    )
                if are_needed and any(vector is None for vector in embedded):
                    raise EmbeddingError(
                        problem
                        or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
                    )
            except EmbeddingError as error:
                self.together.leave_out(file, error)
                continue
            vectors = iter(embedded)
            self._vectors[file] = [
                None if is_by_words else next(vectors) for is_by_words in self._is_by_words
            ]
            self._problems += filter(None, [problem])
        self.notices += [query.notice for query in self._parsed]
        for file in self.together.files:
            self.notices += [notice for _, notice in self._queries[file]]

    def answer(self, number: int) -> SearchResult:
        request, policy = self._requests[number], self._policy
        limit = policy.max_hits or request.limit
        if request.rerank:
            limit = max(limit, CANDIDATES)
        budget = policy.budget._replace(use_words=request.hybrid)
        if not request.hybrid:
            budget = budget._replace(depth=max(limit, budget.depth))
        files = self._searched_files(number)
        total = max(sum(self._looks[file].passages for file in files), 1)
        parts = {}
        for file in files:
            part = budget
            if len(files) > 1:
                part = budget.shared(self._looks[file].passages / total, request.limit)
            query, _ = self._queries[file][number]
            parts[file] = query, self._vectors[file][number], part
        is_by_words = self._is_by_words[number]
        tells_waiting = policy.tells_doubts and not is_by_words
        answered = self.together.each(
            policy.propose, request, tells_waiting, of=parts, at_once=True
        )
        proposals = {file: proposal for file in files if (proposal := answered.get(file))}
        if any(proposal.notice for proposal in proposals.values()):
            proposals = self._agreed(number, proposals)
        origins = [*proposals]
        answers = [proposal.candidates for proposal in proposals.values()]
        most = limit + (MAX_FOLDED if policy.folds else 0)
        shows_all = request.documents.shows_all
        merged = merge(answers, most if shows_all else None, request.max_distance)
        hits = [(origins[origin], hit) for origin, hit in merged]
        if not shows_all:
            hits = request.documents.rows_of(hits, most)
        others: dict[tuple[SearchedFile, int], list[str]] = {}
        if policy.folds:
            folded = {f: (p.candidates, p.file_query.called) for f, p in proposals.items()}
            others = fold(hits, folded, across=not request.collections)
            hits = [
                (file, hit)
                for file, hit in hits
                if hit.document_id is None or (file, hit.document_id) in others
            ][:limit]
        if policy.tells_doubts:
            best, is_alone = [hit for _, hit in hits], len(self._requests) == 1
            self.notices += _doubts(request.text, answers, best, is_alone=is_alone)
        if not is_by_words:
            for file, proposal in proposals.items():
                self._by_meaning.setdefault(file, set()).update(proposal.file_query.ranges)
                if self._vectors[file][number] is None and hits:
                    self._lacks_vectors |= bool(len(files) == 1 or self._looks[file].passages)
                self._some_wait |= proposal.waits
        result = self._rows(number, proposals, hits)
        for file, hit, row in zip(result.files, result.hits, result.rows, strict=False):
            if paths := others.pop((file, hit.document_id or 0), ()):
                row["alsoIn"] = paths
        return result

    def notice_vectors(self, results: Sequence[SearchResult]) -> None:
        """Note why queries or passages have no vectors."""
        self.notices += self._problems
        if (
            self._policy.tells_doubts
            and not self._problems
            and any(answer.rows for answer in results)
        ):
            if self._lacks_vectors:
                self.notices.append(WORDS_ALONE)
            elif self._some_wait:
                self._notice_missing()

    def texts_to_rerank(self, result: SearchResult) -> list[str]:
        """The best hits' texts as the model embedded them."""
        hits = list(zip(result.files, result.hits, strict=True))[:CANDIDATES]
        loaded = self.together.each(embedded_texts, of=_by_file(hits))
        texts = {file: iter(of_file) for file, of_file in loaded.items()}
        return [next(texts[file]) if file in texts else "" for file, _ in hits]

    def rerank(self, result: SearchResult, texts: Sequence[str], limit: int) -> SearchResult:
        """The rows in a finer order. Reranking says which rows are best, the evidence how good the
        best are: the first row gets the highest of their scores, and so on."""
        first = self.together.files[0]
        order, problem = finer_order(first.model, result.queries[first], result.hits, texts)
        self.notices.append(problem)
        scored = list(zip(order, [hit.score for hit in result.hits], strict=True))[:limit]
        return result._replace(
            rows=[{**result.rows[place], "relevanceScore": score} for place, score in scored],
            hits=[result.hits[place]._replace(score=score) for place, score in scored],
            files=[result.files[place] for place, _ in scored],
        )

    def _needs_no_vector(self, number: int) -> bool:
        request, query = self._requests[number], self._parsed[number]
        files = self._searched_files(number)
        if not files or (request.hybrid and query.asks_for_nothing):
            return True
        needs = request.needs_distances or request.rerank or request.max_distance < MAX_DISTANCE
        if needs or not (request.hybrid and query.is_exact):
            return False
        # If nothing matches, the search falls back to one that may need vectors.
        queries = {file: self._queries[file][number][0] for file in files}
        request = request._replace(documents=OPEN)
        return not all(self.together.each(self._policy.notice_of, request, of=queries).values())

    def _searched_files(self, number: int) -> list[SearchedFile]:
        """The files with anything to say to a request."""
        return [file for file in self.together.files if self._looks[file].has_scope[number]]

    def _agreed(
        self, number: int, proposals: dict[SearchedFile, Proposal]
    ) -> dict[SearchedFile, Proposal]:
        """The proposals; a notice that nothing was found holds only if no file finds anything. If
        another file contains the quoted phrase, a file without it does not drop the quotes."""
        notices = [proposal.notice for proposal in proposals.values()]
        if all(notices):
            self.notices += notices[:1]
            return proposals
        agreed = {}
        for file, proposal in proposals.items():
            if proposal.notice:
                query, _ = self._queries[file][number]
                nothing = Candidates(query, proposal.candidates.model)
                file_query = proposal.file_query._replace(query=query)
                proposal = proposal._replace(file_query=file_query, candidates=nothing)
            agreed[file] = proposal
        return agreed

    def _rows(
        self, number: int, proposals: Mapping[SearchedFile, Proposal], hits: Sequence[FileHit]
    ) -> SearchResult:
        """The rows of the hits, in their order."""
        policy = self._policy
        queries = {file: of_file[number][0] for file, of_file in self._queries.items()}
        by_file = _by_file(hits)
        shown = {
            file: (proposal.file_query, by_file.get(file, ()))
            for file, proposal in proposals.items()
            if file in by_file or policy.is_of_documents
        }
        rows = self.together.each(policy.rows, self._requests[number], of=shown)
        if policy.is_of_documents:
            files = [file for file, of_file in rows.items() for _ in of_file]
            listed = [row for of_file in rows.values() for row in of_file]
            return SearchResult(listed, [hit for _, hit in hits], files, queries)
        hits = [(file, hit) for file, hit in hits if file in rows]
        left = {file: iter(of_file) for file, of_file in rows.items()}
        listed = [next(left[file]) for file, _ in hits]
        return SearchResult(listed, [hit for _, hit in hits], [file for file, _ in hits], queries)

    def _notice_missing(self) -> None:
        """Note that some of the searched passages have no vector yet."""
        ranges = {
            file: {WHOLE_FILE} if WHOLE_FILE in within else within
            for file, within in self._by_meaning.items()
        }
        counts = self.together.each(count_vectors, of=ranges)
        total, embedded = (sum(numbers) for numbers in zip(*counts.values(), strict=True))
        self.notices.append(
            f"{embedded:,} of {counted(total, 'passage has', 'passages have')} vectors yet: the "
            "others are found by words alone until `kb sync` has made theirs."
        )


def _by_file(hits: Iterable[FileHit]) -> dict[SearchedFile, list[Hit]]:
    by_file: dict[SearchedFile, list[Hit]] = {}
    for file, hit in hits:
        by_file.setdefault(file, []).append(hit)
    return by_file


def _doubts(
    text: str, answers: Sequence[Candidates], hits: Sequence[Hit], *, is_alone: bool
) -> list[str]:
    """Sentences about the answers to a request, whose hits from all files are best first."""
    notices: list[str] = []
    if any(answer.words and answer.words.is_cut for answer in answers):
        notices.append(NOT_ALL_COMPARED)
    is_unlikely = not hits or hits[0].score < RELEVANT
    absent, _ = absent_words(answers)
    by_meaning = hits and any(answer.nearest and answer.model.is_english for answer in answers)
    typed = words_of(text)
    is_english = len(typed) < FOREIGN_FROM or any(
        says_little(word) for word in typed if word.isascii()
    )
    places = (english_number(word.lower()) or ENGLISH_WORDS for word in typed)
    # To tell a language takes .4 s the first time: only where something is said of it.
    is_foreign = (is_unlikely and (absent or by_meaning)) and (
        min((answer.readable for answer in answers), default=1.0) < MOSTLY
        or not (is_english or max(places) < ENGLISH_WORDS or may_be_english(text))
    )
    if absent and not is_foreign:
        listed = [f'"{word}"' for word in absent]
        notices.append(f"No document has {some_of(listed)}.")
    if is_unlikely and hits:
        notices.append(UNLIKELY if is_alone else UNLIKELY_OF.format(text))
        if is_foreign and by_meaning:
            notices.append(READS_ENGLISH)
    return notices
