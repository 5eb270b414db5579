"""Searches over all files that are read as one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from kb.library.workspace import Workspace
from kb.open_file import OpenFile
from kb.results.filters import FilterOptions
from kb.search.files import SearchedFile
from kb.search.filters import DocumentFilter
from kb.search.run import SearchRequest
from kb.sources.address import is_remote, local
from kb.store.collections import all_collections
from kb.store.connection import Row
from kb.text.times import parse_time

if TYPE_CHECKING:
    from kb.results.search import BatchResults, SearchResults
    from kb.search.run import SearchResult

Question = tuple[str, Sequence[str]]  # a query and the collections to look in; none: all
FilteredQuestion = tuple[str, Sequence[str], FilterOptions]


class Searching(Workspace):
    def search(
        self,
        query: str,
        *,
        collections: Sequence[str] = (),
        limit: int = 10,
        max_distance: float = 2.0,
        hybrid: bool = True,
        rerank: bool = False,
        **filters: Unpack[FilterOptions],
    ) -> SearchResults:
        """The passages that answer a question or contain some words, best first.

        Args:
            query: words or a question; operators `+must -mustnot "exact phrase" prefix* tag:NAME`.
            collections: where to look; by default in all.
            max_distance: leave out rows with a greater cosine distance (0 to 2).
            hybrid: words and meaning together; False: meaning alone.
            rerank: spend more time on a finer order of the best candidates.

        Raises:
            EmbeddingError: `hybrid` is off, and there are no vectors.
            UsageError: a filter is malformed.
        """
        from kb.results.search import SearchResults, SearchRow

        documents = DocumentFilter.of(filters)
        request = SearchRequest(
            query, collections, limit, max_distance, hybrid, rerank, documents=documents
        )
        (answered,), notice = answer(self, [request])
        rows = [SearchRow.from_dict(row) for row in answered.rows]
        return SearchResults(results=rows, notice=notice or None)

    def search_batch(
        self,
        queries: Sequence[str | Question | FilteredQuestion],
        *,
        limit: int = 5,
        max_distance: float = 2.0,
        hybrid: bool = True,
        rerank: bool = False,
        **filters: Unpack[FilterOptions],
    ) -> BatchResults:
        """Several searches as `search`, whose queries are embedded together.

        Args:
            queries: texts, or tuples of a text, the collections to look in, and its own filters.
        """
        from kb.results.search import BatchResult, BatchResults, SearchRow

        requests = []
        for query in queries:
            text, names, *of_query = (query, ()) if isinstance(query, str) else query
            documents = DocumentFilter.of({**filters, **(of_query[0] if of_query else {})})
            options = (max_distance, hybrid, rerank)
            requests.append(SearchRequest(text, names, limit, *options, documents=documents))
        answers, notice = answer(self, requests)
        return BatchResults(
            results=[
                BatchResult(
                    query=request.text, results=[SearchRow.from_dict(row) for row in result.rows]
                )
                for request, result in zip(requests, answers, strict=True)
            ],
            notice=notice or None,
        )

    def search_for_people(
        self,
        query: str,
        *,
        collections: Sequence[str] = (),
        limit: int = 10,
        rerank: bool = False,
        distances: bool = True,
        explain: bool = False,
        only_first: bool = False,
        **filters: Unpack[FilterOptions],
    ) -> tuple[list[dict[str, Any]], str]:
        """As `search`, for a reader's eyes: rows as the tools send them, and a notice.

        Each row also has `snippet` with `marks` (start and end of each matched word), `file` (""
        if there is none) and `changedSinceSync`. Rows are plain dicts: making the result types
        would take a tenth of the time of a search by words.

        Args:
            distances: include each row's distance, which needs the model.
            explain: include each row's ranks and the reasons for its score.
            only_first: search only the writable file.
        """
        from kb.search.results import search_for_people

        look_at_archives(self)
        request = SearchRequest(
            *(query, collections, limit),
            rerank=rerank,
            needs_distances=distances,
            documents=DocumentFilter.of(filters),
        )
        files = [SearchedFile(self.model, self.names)] if only_first else self.everywhere
        lost = "" if only_first else self.lost  # what is lost from now on is in the notice
        rows, notice = search_for_people(files, request, explain=explain)
        return rows, " ".join(filter(None, (notice, lost)))


def answer(base: Workspace, requests: Sequence[SearchRequest]) -> tuple[list[SearchResult], str]:
    """As `run_batch`, over all files of a knowledge base and the current state of its archives."""
    from kb.search.run import run_batch

    look_at_archives(base)
    files = base.everywhere
    lost = base.lost  # what is lost from now on is in the notice
    answers, notice = run_batch(files, requests)
    return answers, " ".join(filter(None, (notice, lost)))


def look_at_archives(workspace: Workspace) -> None:
    """Sync the archives whose folders changed; looks every few seconds at most."""
    file = workspace.file
    if file.database.read_only or time.monotonic() < file.archive_folders.next_look:
        return
    with file.archive_folders.looking() as is_due:
        if not is_due:
            return
        for base in workspace.list_shards(skips_unreadable=True):
            with base.database.read() as connection:
                rows = all_collections(connection)
            for row in rows:
                if row["kind"] == "archive" and row["source"] and not is_remote(row["source"]):
                    _look_at_archive(base.file, row)


def _look_at_archive(file: OpenFile, row: Row) -> None:
    from kb.ingest.reach import unconfirmed  # here: only files with archives need it

    if unconfirmed(file.database, [row]):
        return
    since = parse_time(row["synced_at"]).timestamp() if row["synced_at"] else 0.0
    if file.archive_folders.has_changed(local(row["source"]), since):
        from kb.ingest.follow import sync_changed_archive  # here: it loads all that syncs

        sync_changed_archive(file, row)
