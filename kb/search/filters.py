"""Filters of a search: which documents it searches, and which rows it shows."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple, TypeVar

from kb.errors import UsageError
from kb.formats.tags import normal_tag
from kb.results.filters import FilterOptions
from kb.search.merge import Hit
from kb.search.operators import NO_FILTERS, Filters, no_such_tag, tag_bounds
from kb.store.chunks import Ranges, chunks_of_documents
from kb.store.connection import Connection
from kb.store.names import Labels

SORTS = ("score", "date")
MAX_CACHED = {"passing": 6, "fitting": 60}  # sets, of 30 MB for a million passages
T = TypeVar("T")
_DATE = re.compile(r"\d{4}(-\d\d){0,2}", re.ASCII)


class DocumentFilter(NamedTuple):
    paths: Sequence[str] = ()
    tags: Sequence[str] = ()
    metadata: Sequence[str] = ()
    since: str = ""
    until: str = ""
    min_score: float = 0.0
    max_per_document: int = 0
    sort: str = "score"

    @classmethod
    def of(cls, options: FilterOptions) -> DocumentFilter:
        """Raises UsageError for an option that means nothing."""
        documents = cls(**options)
        for name in ("since", "until"):
            _require_date(name, getattr(documents, name))
        for text in documents.metadata:
            if not text.partition("=")[0].strip() or "=" not in text:
                raise UsageError(f'metadata is "key=value", not "{text}"', field="metadata")
        if documents.sort not in SORTS:
            raise UsageError(f"sort is score or date, not {documents.sort}", field="sort")
        return documents

    @property
    def shows_dates(self) -> bool:
        return bool(self.since or self.until or self.sort == "date")

    @property
    def shows_all(self) -> bool:
        """Whether no hit is dropped except for lack of room."""
        return not (self.min_score or self.max_per_document)

    @property
    def is_open(self) -> bool:
        """Whether every document passes."""
        return not (self.paths or self.tags or self.metadata or self.since or self.until)

    def rows_of(self, hits: list[tuple[T, Hit]], limit: int) -> list[tuple[T, Hit]]:
        """The hits to show, each with its file."""
        if self.shows_all:
            return hits[:limit]
        counts: dict[tuple[int, int | None], int] = defaultdict(int)
        shown = []
        for file, hit in hits:
            counts[id(file), hit.document_id] += 1
            is_within = 0 < self.max_per_document < counts[id(file), hit.document_id]
            if hit.score >= self.min_score and not is_within:
                shown.append((file, hit))
        return shown[:limit]


OPEN = DocumentFilter()


def within_filter(
    connection: Connection,
    filters: Filters,
    documents: DocumentFilter,
    ranges: Ranges,
    called: Labels,
) -> tuple[Filters, str]:
    """Filters narrowed to matching documents, and a notice if none match; `called`: how each
    collection is shown, by row id. Raises UsageError for a glob that can match nothing."""
    if documents.is_open:
        return filters, ""
    key = [documents[:5], ranges, [*called]]
    ids, notice = _cached(
        connection, "passing", key, lambda: _passing(connection, documents, ranges, called)
    )
    if filters != NO_FILTERS:
        ids = (ids if filters.only is None else ids & filters.only) - (filters.without or set())
    return filters._replace(only=ids, without=None), notice


def _passing(
    connection: Connection, documents: DocumentFilter, ranges: Ranges, called: Labels
) -> tuple[set[int], str]:
    """The passages of the documents that pass, and a notice if there are none."""
    passing: set[int] | None = None
    for ids, why in _conditions(connection, documents, ranges, called):
        if not ids:
            return set(), why
        passing = ids if passing is None else passing & ids
    if not passing:
        return set(), "No document passes all filters together."
    return chunks_of_documents(connection, passing), ""


def _conditions(
    connection: Connection, documents: DocumentFilter, ranges: Ranges, called: Labels
) -> Iterator[tuple[set[int], str]]:
    """The documents that pass each filter, and the notice if none do."""

    def find(statement: str, **parameters: str | list[str]) -> set[int]:
        return _cached(
            connection,
            "fitting",
            [statement, parameters, ranges],
            lambda: set(connection.column(statement, ranges=ranges, **parameters)),
        )

    if documents.since or documents.until:
        bounds = {"since": documents.since, "until": documents.until}
        why = " ".join(f"{word} {day}" for word, day in bounds.items() if day)
        # "~" sorts after anything that can follow the beginning of a date.
        ids = find("documents_dated", since=documents.since or "0", until=f"{documents.until}~")
        yield ids, f"No document has a date {why}."
    for name in map(normal_tag, documents.tags):
        ids = find("documents_tagged", **tag_bounds(name))
        yield ids, "" if ids else no_such_tag(connection, name, ranges)
    values: dict[str, list[str]] = defaultdict(list)
    for text in documents.metadata:
        key, _, value = text.partition("=")
        values[key.strip()].append(value.strip())
    for key, alternatives in values.items():
        why = f"No document has {' or '.join(f'{key}={value}' for value in alternatives)}."
        yield find("documents_with_metadata", key=key, alternatives=alternatives), why
    if documents.paths:
        why = f"No document's path fits {' or '.join(documents.paths)}."
        arguments = documents.paths, ranges, called
        ids = _cached(
            connection,
            "fitting",
            [*arguments[:2], [*called]],
            lambda: _matching(connection, *arguments),
        )
        yield ids, why


def _cached(connection: Connection, name: str, arguments: list[Any], find: Callable[[], T]) -> T:
    """What `find` gives; a few results are kept until the file changes."""
    cached: dict[str, T] = connection.cached(name)
    key = json.dumps(arguments)
    if key not in cached:
        if len(cached) >= MAX_CACHED[name]:
            cached.clear()
        cached[key] = find()
    return cached[key]


def _matching(
    connection: Connection, globs: Sequence[str], ranges: Ranges, called: Labels
) -> set[int]:
    """Documents whose id matches a glob, alone or after its collection's name (as in a project)."""
    from kb.disk.globs import Globs  # here: a tenth of what a search by words imports

    fitting = Globs(globs, descend=False)
    return {
        document_id
        for first, last in ranges
        for document_id, collection_id, path in connection.tuples(
            "paths_of_range", first=first, last=last
        )
        if fitting.match(path)
        or any(fitting.match(f"{name}/{path}") for name in called.get(collection_id, {}).values())
    }


def _require_date(name: str, text: str) -> None:
    """Raise UsageError unless it is a day, a month or a year."""
    try:
        if text:
            date.fromisoformat(
                f"{text}{'-01-01'[len(text) - 4 :]}" if _DATE.fullmatch(text) else ""
            )
    except ValueError:
        raise UsageError(
            f'{name} is a date, such as 2026-01-31, not "{text}"', field=name
        ) from None
