"""Finds the document that somebody names: by its id, its path on disk, or the end of its id."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kb.errors import DocumentNotFound, UsageError
from kb.library.workspace import Workspace
from kb.search.files import SearchedFile
from kb.sources.address import local
from kb.store.collections import Called
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, document_paths, documents_page
from kb.text.file_names import on_disk, storable
from kb.text.nearest import nearest

T = TypeVar("T")

_LINES = re.compile(r"(.+?):(\d++)(-?)(\d*+)$")  # "a.md:3", "a.md:3-5", "a.md:3-"


def resolve_lines(workspace: Workspace, text: str, name: str) -> tuple[str, str, int, int]:
    """As `resolve`, for a document with a range of lines: the first and the last, 0 for none."""
    try:
        return *resolve(workspace, text, name), 0, 0
    except DocumentNotFound:
        if not (match := _LINES.match(text)):
            raise
    first = int(match[2])
    last = int(match[4] or 0) if match[3] else first
    if not first:
        raise UsageError("lines count from 1")
    return *resolve(workspace, match[1], name), first, last


def resolve(workspace: Workspace, text: str, name: str) -> tuple[str, str]:
    """The collection and id of the document that a text names.

    Tried in order: an id in the named or any collection, `COLLECTION/id`, a path on disk inside
    a collection's folder, the end of one id. Raises DocumentNotFound or UsageError (ambiguous).
    """
    path = Path(text if os.path.lexists(text) else on_disk(text)).expanduser()
    places = {Path(os.path.normpath(path.absolute())), path.resolve()}
    answers, notice = workspace.ask_all(_matches, name, text, places)
    files = [*answers.values()]
    if name and not any(file.has_collection for file in files):
        names = [other for file in files for other in file.names]
        with workspace.database.read() as connection:
            workspace.first_collection(connection, name, names, [notice])
    first = min(file.rank for file in files)
    matches = dict.fromkeys(chain.from_iterable(f.matches for f in files if f.rank == first))
    if len(matches) == 1:
        return next(iter(matches))
    if matches:
        choices = ", ".join(map("/".join, [*matches][:5]))
        raise UsageError(f"{text} names {len(matches)} documents: say {choices}")
    where = f'collection "{name}"' if name else "any collection"
    hint = f" {notice}" if notice else ""
    if not (notice or any(file.has_documents for file in files)):
        hint = " Nothing is stored there yet: `kb add FOLDER` or `kb sync` does it."
    raise DocumentNotFound(
        f'Document "{text}" not found in {where}.{hint}',
        suggestions=nearest(text, [near for file in files for near in file.names]),
    )


class OpenDocument(NamedTuple):
    """A document's row, with its text, and the open read of its file."""

    row: Row
    connection: Connection
    collection: Row
    file: SearchedFile

    @property
    def names(self) -> dict[str, Any]:
        """The fields of a result that name it."""
        return {**self.file.names.called(self.collection)._asdict(), "document": self.row["path"]}


def read_document(
    workspace: Workspace, document: str, collection: str, step: Callable[..., T], *arguments: Any
) -> tuple[T, SearchedFile]:
    """The result of a step (`kb/search/run.py`) on a document, and the file that holds it.

    Args:
        document: its id or, without a collection, what somebody types.
        step: called with an `OpenDocument` and the arguments.
    """
    if not collection:
        collection, document = resolve(workspace, document, "")
    answers, notice = workspace.ask_all(_read, collection, document, step, arguments)
    for file, answer in answers.items():
        if answer.is_there:
            return answer.result, file
    shown = next((answer.shown for answer in answers.values() if answer.shown), "")
    names = [name for each in answers.values() if each.shown == shown for name in each.names]
    if not shown:
        with workspace.database.read() as connection:
            workspace.first_collection(connection, collection, names, [notice])
    message = f'Document "{document}" not found in collection "{shown}".'
    raise DocumentNotFound(
        " ".join(filter(None, [message, notice])),
        near=lambda: nearest(document, names),
        collection=shown,
        document=document,
    )


class _Answer(NamedTuple):
    is_there: bool
    result: Any = None
    shown: str = ""  # what the file calls the collection; "": it has none of the name
    names: Collection[str] = ()  # the nearest ids or, without the collection, all others


def _read(
    file: SearchedFile,
    connection: Connection,
    collection: str,
    document: str,
    step: Callable[..., Any],
    arguments: Sequence[Any],
) -> _Answer:
    if (row := file.names.find(connection, collection)) is None:
        return _Answer(False, names=file.names.existing(connection))
    shown = file.names.called(row).collection
    try:
        stored = file.names.document(connection, row, document, shown)
    except DocumentNotFound as error:
        return _Answer(False, None, shown, error.details.get("suggestions", ()))
    return _Answer(True, step(OpenDocument(stored, connection, row, file), *arguments), shown)


class _Listed(NamedTuple):
    shown: str  # how it is called among all files
    row: Row
    paths: list[str]


class _Matches(NamedTuple):
    """The documents of a file that somebody may mean, as collections and ids."""

    rank: float  # of the way in which they are meant: see `resolve`
    matches: list[tuple[str, str]]
    has_collection: bool
    has_documents: bool
    names: Collection[str]  # the nearest ids or, where it has not the collection, its collections


def _matches(
    file: SearchedFile, connection: Connection, name: str, text: str, places: Collection[Path]
) -> _Matches:
    if name:
        row = file.names.find(connection, name)
        rows = [row] if row is not None else []
    else:
        named = file.names.collections(connection, named=True)
        rows = [r for r in named if r["project_id"] is None or text.startswith(r["name"])]
    listed = [
        _Listed(
            file.names.called(row).collection, row, document_paths(connection, row["collection_id"])
        )
        for row in rows
    ]
    ways = enumerate(_ways(text, places, listed))
    rank, matches = next((way for way in ways if way[1]), (math.inf, []))
    paths = [path for item in listed for path in item.paths]
    names: Collection[str] = ()
    if not matches:
        names = nearest(text, paths) if rows else file.names.existing(connection)
    return _Matches(rank, matches, bool(rows), bool(paths), names)


def _ways(
    text: str, places: Collection[Path], listed: Sequence[_Listed]
) -> Iterator[list[tuple[str, str]]]:
    typed = _normal(text)
    documents = [(item.shown, path) for item in listed for path in item.paths]
    yield [document for document in documents if _normal(document[1]) == typed]
    yield [
        (item.shown, path)
        for item in listed
        for shown in map(_normal, dict.fromkeys((item.shown, item.row["name"])))
        for path in item.paths
        if typed in (f"{shown}/{_normal(path)}", f"{shown}:{_normal(path)}")
    ]
    yield _on_disk(places, listed)
    yield [document for document in documents if _normal(document[1]).endswith(f"/{typed}")]


def _normal(text: str) -> str:
    """A name as it compares: a Mac decomposes accents, keyboards do not."""
    return unicodedata.normalize("NFC", text)


def _on_disk(places: Collection[Path], listed: Sequence[_Listed]) -> list[tuple[str, str]]:
    matches = []
    for item in listed:
        root = local(item.row["source"])
        for place in places:
            if place == root:  # a collection of one file
                path = _normal(storable(root.name))
            elif place.is_relative_to(root):
                path = _normal(storable(place.relative_to(root).as_posix()))
            else:
                continue
            matches += [(item.shown, stored) for stored in item.paths if _normal(stored) == path]
    return list(dict.fromkeys(matches))


class Page(NamedTuple):
    """Some documents of a collection, which several shards may have."""

    called: Called
    row: Row  # of the collection
    documents: list[Row]
    total: int  # of the whole collection


def read_page(
    workspace: Workspace, collection: str, limit: int, offset: int, sort: str = "id"
) -> Page:
    """A page of a collection's documents, as `documents_page`; -1 for all."""
    is_alone = len(workspace.everywhere) == 1
    bounds = (limit, offset) if is_alone or limit < 0 else (offset + limit, 0)
    answers, notice = workspace.ask_all(_page, collection, *bounds, sort)
    pages = [page for page in answers.values() if isinstance(page, Page)]
    if not pages:
        names = [name for part in answers.values() for name in part if isinstance(name, str)]
        with workspace.database.read() as connection:
            workspace.first_collection(connection, collection, names, [notice])
    documents = [document for page in pages for document in page.documents]
    if not is_alone:
        documents.sort(key=itemgetter("id"))
        if sort == "date":
            documents.sort(key=lambda document: document["date"] or "", reverse=True)
        documents = documents[offset:][: limit if limit >= 0 else None]
    return pages[0]._replace(documents=documents, total=sum(page.total for page in pages))


def _page(
    file: SearchedFile, connection: Connection, name: str, limit: int, offset: int, sort: str
) -> Page | set[str]:
    if (row := file.names.find(connection, name)) is None:
        return file.names.existing(connection)
    key = row["collection_id"]
    documents = documents_page(connection, key, limit, offset, sort)
    return Page(file.names.called(row), row, documents, count_documents(connection, key))
