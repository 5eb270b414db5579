"""Which passages a search may find: what its operators let pass (required and excluded words, tags,
paths), and its filters of documents and rows.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kb.errors import UsageError
from kb.formats.metadata import normal_tag
from kb.results.filters import FilterOptions
from kb.search.files import Snapshot, max_df, max_ranking_df, slices
from kb.search.occurrences import (
    MAX_BORDERS,
    across_borders,
    chunks_holding,
    documents_holding,
    match_of,
    match_of_word,
    passing,
    proposed,
    words_of,
)
from kb.search.query import TAG, Operand, Query, quote, says_little
from kb.search.typos import prefixed
from kb.search.words import is_word_prefix, pattern
from kb.store.collections import Labels
from kb.store.connection import Connection
from kb.store.contents import Ranges, chunks_of_documents
from kb.text.nearest import nearest

if TYPE_CHECKING:
    from kb.search.evidence import Hit

MAX_PREFIX_WORDS = 500  # that take part in a ranking
COMMON_PREFIX_WORDS = 50  # likewise, of a prefix in very many passages
MAX_TAGS_NAMED = 10
NO_SUCH_PHRASE = "No passage holds the quoted words in a row: searched without the quotes."

MAX_COMPARED = 2_000  # chunks whose texts are compared before ranking; of more, the best are
MAX_PROPOSED = 20_000  # chunks that are listed; more are nearly a share of the file
AT_ONCE = 150  # chunks compared until there are enough
NOTHING_LATE: tuple[tuple[Operand, ...], tuple[Operand, ...]] = ((), ())


class Filters(NamedTuple):
    """Which rows may be found."""

    only: set[int] | None = None
    without: set[int] | None = None
    # What else a row must contain, and must not; checked after ranking, as so many rows may fit.
    late: tuple[tuple[Operand, ...], tuple[Operand, ...]] = NOTHING_LATE
    is_cut: bool = False  # some matching rows are not among `only`


NO_FILTERS = Filters()


def passes(filters: Filters, row_id: int) -> bool:
    """Whether filters let something pass, as far as that is known without its text."""
    is_within = filters.only is None or row_id in filters.only
    return is_within and row_id not in (filters.without or ())


def first_passing(
    connection: Connection, filters: Filters, chunk_ids: Sequence[int], enough: int
) -> list[int]:
    """The first of some chunks, in their order, whose texts pass: `enough`, or all."""
    first: list[int] = []
    for ids in slices(chunk_ids, AT_ONCE):
        passed = passing(connection, ids, *filters.late)
        first += [chunk_id for chunk_id in ids if chunk_id in passed]
        if len(first) >= enough:
            break
    return first


def chunk_filters(connection: Connection, query: Query, ranges: Ranges) -> Filters:
    """The only chunks that may be found, or those that may not. A chunk includes its headings."""
    counts = {
        operand: _most_holding(connection, operand) for operand in (*query.must, *query.must_not)
    }
    must = sorted(query.must, key=counts.__getitem__)
    must_not = sorted(query.must_not, key=counts.__getitem__)
    only: set[int] | None = None
    without: set[int] = set()
    is_cut = False
    if must and counts[must[0]] > MAX_COMPARED:
        only, is_cut = _fitting(connection, must, ranges)
        if only is not None:  # words by themselves need no comparison
            must = [operand for operand in must if not match_of_word(connection, operand)]
    for operand in [*must]:
        is_quick = only is None or match_of_word(connection, operand)
        if counts[operand] <= MAX_COMPARED and is_quick:
            holding = chunks_holding(connection, operand, ranges)
            only = holding if only is None else only & holding
            must.remove(operand)
    for tag in query.tags:
        tagged = _chunks_tagged(connection, tag, ranges)
        only = tagged if only is None else only & tagged
    is_small = only is not None and len(only) <= MAX_COMPARED
    room = MAX_COMPARED
    for operand in [*must_not]:
        is_quick = not is_small or match_of_word(connection, operand)
        if is_quick and (room := room - counts[operand]) >= 0:
            without |= chunks_holding(connection, operand, ranges)
            must_not.remove(operand)
    for tag in query.tags_not:
        without |= _chunks_tagged(connection, tag, ranges)
    # What leaves the fewest chunks for the others comes first; a phrase is rarer than its words.
    must.sort(key=lambda operand: (not operand.is_phrase, counts[operand]))
    must_not.sort(key=lambda operand: (operand.is_phrase, -counts[operand]))
    if only is None:
        return Filters(None, without or None, (tuple(must), tuple(must_not)))
    only = only - without
    if is_small and (must or must_not):
        return Filters(passing(connection, only, must, must_not), is_cut=is_cut)
    return Filters(only, None, (tuple(must), tuple(must_not)), is_cut)


def _most_holding(connection: Connection, operand: Operand) -> int:
    """About how many chunks may contain an operand; exact up to `MAX_COMPARED`."""
    sought = pattern(connection, operand)
    if not sought.words:
        return 0
    words = [match_of(connection, sought)] if is_word_prefix(sought) else words_of(sought)
    snapshot = Snapshot(connection)
    if not all(words):
        return max(snapshot.sizes.passages, MAX_COMPARED + 1)
    return min(snapshot.estimated_df(words, MAX_COMPARED + 1).values())


def _fitting(
    connection: Connection, must: Sequence[Operand], ranges: Ranges
) -> tuple[set[int] | None, bool]:
    """The chunks that may contain all operands, None if very many, and whether some are missing."""
    patterns = [pattern(connection, operand) for operand in must]
    if not any(match_of(connection, operand) for operand in patterns):
        return None, False
    chunk_ids = proposed(connection, patterns, ranges, MAX_PROPOSED + 1)
    if len(chunk_ids) > MAX_PROPOSED:
        return None, False
    is_cut = False
    for sought in patterns:
        across = across_borders(connection, sought, ranges, MAX_BORDERS)
        is_cut |= across is None
        chunk_ids |= across or set()
    return chunk_ids, is_cut


def enforced(connection: Connection, query: Query, ranges: Ranges) -> tuple[Query, Filters, str]:
    """A query with its `chunk_filters`, and a notice. Quotes were often pasted: if no passage
    contains a quoted phrase, its words are searched without them."""
    for tag in query.tags:
        if not _chunks_tagged(connection, tag, ranges):
            return query, Filters(set()), no_such_tag(connection, tag, ranges)
    filters = chunk_filters(connection, query, ranges)
    if filters.only != set() or not query.quoted:
        return query, filters, ""
    query = query.without_quotes()
    return query, chunk_filters(connection, query, ranges), NO_SUCH_PHRASE


def document_filters(
    connection: Connection, query: Query, ranges: Ranges, *, case: bool = False
) -> Filters:
    """The only documents that may be found, or those that may not. Operands may lie far apart."""

    def holding(operand: Operand) -> set[int]:
        return documents_holding(connection, operand, ranges, case=case)

    only: set[int] | None = None
    for operand in query.must:
        only = holding(operand) if only is None else only & holding(operand)
        if not only:
            return Filters(only)
    without: set[int] = set().union(*map(holding, query.must_not))
    return Filters(None, without or None) if only is None else Filters(only - without)


def filters_by_document(connection: Connection, query: Query, ranges: Ranges) -> Filters:
    """As `document_filters`, as the chunks of those documents."""
    filters = document_filters(connection, query, ranges)
    only, without = (
        None if ids is None else chunks_of_documents(connection, ids) for ids in filters[:2]
    )
    return Filters(only, without)


def match_prefixes(snapshot: Snapshot, query: Query) -> dict[str, str]:
    """For each prefix of a query, by its text, the MATCH expression of a word for each stem; some
    are left out. A prefix in very many passages counts as if all had it."""
    matches: dict[str, str] = {}
    for operand in (*query.must, *query.terms):
        folded = pattern(snapshot.connection, operand).folded if operand.is_prefix else ()
        if len(folded) == 1:
            existing = prefixed(snapshot.connection, folded)[folded[0]]
            words = [*{stem: word for word, stem in existing.items()}.values()]
            if is_common := snapshot.is_common_prefix(folded[0]):
                words = _some_telling(snapshot, words)
            if words:
                match = " OR ".join(map(quote, words[:MAX_PREFIX_WORDS]))
                matches[operand.text] = match
                if is_common:
                    snapshot.take_as_held_by_all(match)
    return matches


def _some_telling(snapshot: Snapshot, words: list[str]) -> list[str]:
    """Some of a common prefix's words, rare enough together to rank."""
    some = [word for word in words if not says_little(word)][:COMMON_PREFIX_WORDS]
    counts = snapshot.estimated_df(map(quote, some), max_df(snapshot.sizes.passages))
    some.sort(key=lambda word: counts[quote(word)])
    standing = accumulate(counts[quote(word)] for word in some)
    few = sum(passages <= max_ranking_df(snapshot.sizes.passages) for passages in standing)
    return some[: max(few, 1)] or words[:1]


def no_such_tag(connection: Connection, tag: str, ranges: Ranges) -> str:
    """The notice that no document has a tag, with similar tags."""
    rows = connection.tuples("known_tags", ranges=json.dumps(ranges))
    existing = [row[0].removeprefix(TAG) for row in rows]
    near = nearest(tag, existing) or existing[:MAX_TAGS_NAMED]
    there_are = f": there are {', '.join(near)}" if near else ""
    return f'No document has the tag "{tag}"{there_are}.'


def tag_bounds(tag: str) -> dict[str, str]:
    """The key of a tag, and the keys between which its sub-tags lie."""
    return {"tag": TAG + tag, "below": f"{TAG}{tag}/", "behind": f"{TAG}{tag}0"}  # "0" follows "/"


def _chunks_tagged(connection: Connection, tag: str, ranges: Ranges) -> set[int]:
    """The chunks of documents with a tag or a sub-tag: `a` includes `a/b`."""
    rows = connection.tuples("chunk_ids_tagged", ranges=json.dumps(ranges), **tag_bounds(tag))
    return {row[0] for row in rows}


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
        paths, tags, metadata = (
            (texts,) if isinstance(texts, str) else texts for texts in documents[:3]
        )
        since, until = (str(day or "") for day in (documents.since, documents.until))
        documents = documents._replace(
            paths=paths, tags=tags, metadata=metadata, since=since, until=until
        )
        for name in ("since", "until"):
            if text := getattr(documents, name):
                _require_date(name, text)
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
        date.fromisoformat(f"{text}{'-01-01'[len(text) - 4 :]}" if _DATE.fullmatch(text) else "")
    except ValueError:
        raise UsageError(
            f'{name} is a date, such as 2026-01-31, not "{text}"', field=name
        ) from None
