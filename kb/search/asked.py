"""What is asked of each file: its collections, its words, what the operators let pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kb.search.files import SearchedFile, Together
from kb.search.operators import Filters, enforced
from kb.search.paths import within_paths
from kb.search.query import Query
from kb.search.typos import correct, known_words
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

Asked = tuple[str, Sequence[str]]  # a query and the collections to look in; none: all


class FileQuery(NamedTuple):
    """What one file is asked, and where in it.

    Attributes:
        filters: what the operators let pass.
        called: how each collection there is shown, by its row id.
    """

    query: Query
    filters: Filters
    ranges: Sequence[ChunkRange]
    called: dict[int, dict[str, str]]


def places_of(together: Together, asked: Sequence[Asked]) -> dict[SearchedFile, list[bool]]:
    """For each file whether it holds a collection that each query asks for.

    Raises:
        CollectionNotFound: a name that no file has.
    """
    wanted = list(dict.fromkeys(name for _, names in asked for name in names))
    if not wanted:
        return {file: [True] * len(asked) for file in together.files}

    def known(file: SearchedFile, connection: Connection) -> set[str]:
        return {name for name in wanted if file.names.find(connection, name) is not None}

    known_to = together.each(known)
    for name in wanted:
        if not any(name in names for names in known_to.values()):
            names = together.each(lambda file, connection: file.names.known(connection))
            others = [one for own in names.values() for one in own]
            together.each(
                lambda file, connection: file.names.collection(connection, name, others=others)  # noqa: B023
            )
    return {
        file: [not names or not known.isdisjoint(names) for _, names in asked]
        for file, known in known_to.items()
    }


def corrected_for(
    together: Together, queries: Sequence[Query]
) -> dict[SearchedFile, list[tuple[Query, str]]]:
    """Each query as it is asked of each file, with likely words for what no file knows."""
    words = together.each(
        lambda _, connection: [known_words(connection, query) for query in queries]
    )
    known = [set().union(*every) for every in zip(*words.values(), strict=True)]
    return together.each(
        lambda _, connection: [
            correct(connection, query, known=own) for query, own in zip(queries, known, strict=True)
        ]
    )


def loosens(
    together: Together,
    corrected: Mapping[SearchedFile, Sequence[tuple[Query, str]]],
    places: Mapping[SearchedFile, Sequence[bool]],
    number: int,
    collections: Sequence[str],
) -> bool:
    """Whether nothing holds what a query asks for, so that it is searched in another way."""
    queries = {file: corrected[file][number][0] for file in together.files if places[file][number]}
    return bool(filters_of(together, queries, collections)[1])


def filters_of(
    together: Together,
    queries: Mapping[SearchedFile, Query],
    collections: Sequence[str],
    paths: Sequence[str] = (),
) -> tuple[dict[SearchedFile, FileQuery], str]:
    """The queries with what their operators let pass of each file, and what to tell the reader.

    What `enforced` does where nothing is found, such as searching without the quotes, it does
    only where no file holds anything.
    """

    def enforce(file: SearchedFile, connection: Connection) -> tuple[FileQuery, str] | None:
        if file not in queries:
            return None
        ranges, called = file.names.ranges(connection, collections, some=True)
        query, filters, notice = enforced(connection, queries[file], ranges)
        if paths:
            filters, unmatched = within_paths(connection, filters, ranges, called, paths)
            notice = f"{notice} {unmatched}".strip()
        return FileQuery(query, filters, ranges, called), notice

    found = {file: one for file, one in together.each(enforce).items() if one is not None}
    notices = [notice for _, notice in found.values()]
    if all(notices):
        return {file: looked for file, (looked, _) in found.items()}, next(iter(notices), "")
    return {
        file: looked._replace(query=queries[file], filters=(set(), None)) if notice else looked
        for file, (looked, notice) in found.items()
    }, ""
