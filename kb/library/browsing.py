"""Names and documents for resources, completions, prompts and change notices.

A client sees everybody's collections and those of the project that it activated; names that do not
exist raise `CollectionNotFound` or `DocumentNotFound` with the nearest ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container
from typing import NamedTuple

from kb.errors import DocumentNotFound, FileError, NotFoundError
from kb.library.resolve import OpenDocument, read_document
from kb.library.workspace import Workspace
from kb.search.files import SearchedFile
from kb.store.collections import ALL_KINDS, BROWSABLE_KINDS
from kb.store.connection import Connection, Row
from kb.store.contents import (
    document_hashes,
    document_paths,
    documents_changed_since,
    documents_of_project,
    sections_of,
)


class Readable(NamedTuple):
    """A document's text; `is_listed` where the documents tools read it too."""

    path: str
    text: str
    line_count: int
    is_listed: bool


def list_visible(
    workspace: Workspace, number: int, offset: int, limit: int
) -> tuple[list[Row], bool]:
    """Documents of a file with what each collection is called among all files, and whether there
    are more; an unreadable file has none beside others."""
    files = workspace.files
    file = files[number]
    rows: list[Row] = []
    try:
        with file.database.read() as connection:
            rows = documents_of_project(
                connection, BROWSABLE_KINDS, _project_id(workspace, file), limit + 1, offset
            )
    except FileError:
        if len(files) == 1:
            raise
    shown = [
        {**row, "collection": file.names.everywhere(row["collection"])} for row in rows[:limit]
    ]
    return shown, len(rows) > limit


def read_visible(workspace: Workspace, collection: str, document: str) -> Readable:
    """A document by its id."""
    if not document:
        raise DocumentNotFound(f'Document "" not found in collection "{collection}".')
    try:
        with workspace.read_collection(
            collection,
            lambda file, connection: _visible_collection(workspace, file, connection, collection),
        ) as (connection, row, file):
            stored = file.names.document(connection, row, document, collection)
            return _readable(OpenDocument(stored, connection, row, file))
    except NotFoundError:
        if len(workspace.everywhere) == 1:
            raise
    return read_document(workspace, document, collection, _readable)[0]


def _readable(reading: OpenDocument) -> Readable:
    stored = reading.row
    is_listed = reading.collection["kind"] in BROWSABLE_KINDS
    return Readable(stored["path"], stored["content"], stored["line_count"], is_listed)


def true_name(workspace: Workspace, collection: str) -> str:
    """A collection's own name among all files, whatever alias it is asked by, or ""."""
    file = workspace.files[0]
    with file.database.read() as connection:
        row = _visible_collection(workspace, file, connection, collection)
    return "" if row is None else file.names.everywhere(row["name"])


def visible_names(workspace: Workspace) -> list[str]:
    """What the collections of all readable files are called."""
    return [file.names.called(row).collection for file, row in _visible_of_all(workspace)]


def visible_documents(workspace: Workspace, collection: str) -> list[str]:
    """The ids of a collection's documents; of all documents if there is no such collection."""
    listed = _visible_of_all(workspace)
    chosen = [(file, row) for file, row in listed if row["name"] == file.names.stored(collection)]
    paths: list[str] = []
    for file, row in chosen or listed:
        with file.database.read() as connection:
            paths += document_paths(connection, row["collection_id"])
    return paths


def visible_headings(workspace: Workspace, collection: str, document: str) -> list[str]:
    """The headings of a document; none if there is no such collection."""
    missing: DocumentNotFound | None = None
    for file, row in _visible_of_all(workspace):
        if row["name"] == file.names.stored(collection):
            with file.database.read() as connection:
                try:
                    stored = file.names.document(connection, row, document, collection)
                except DocumentNotFound as error:
                    missing = error  # another shard may have it
                    continue
                sections = sections_of(connection, stored["document_id"])
                return [section["heading"] for section in sections]
    if missing is not None:
        raise missing
    return []


def changed_documents(workspace: Workspace, collection: str, since: str, limit: int) -> list[Row]:
    """Documents of a collection, or of all for "", changed since a time, newest first."""
    changed: list[Row] = []
    if collection:
        with workspace.read_collection(collection):
            pass  # raises, with the near names
    for file in workspace.files:
        # The tools that this leads to report what cannot be read.
        with contextlib.suppress(FileError), file.database.read() as connection:
            row = file.names.find(connection, collection) if collection else None
            rows = [row] if row else []
            if not collection:
                rows = _visible_collections(workspace, file, connection)
            for row in rows:
                name = file.names.called(row).collection
                listed = documents_changed_since(connection, row["collection_id"], since, limit)
                changed += [{**document, "collection": name} for document in listed]
    return sorted(changed, key=lambda row: (row["changed_at"], row["path"]), reverse=True)


def hashes_of_documents(workspace: Workspace) -> dict[tuple[str, str], bytes]:
    """Collection and id of each document of the first file, or of all shards, with the hash of its
    content."""
    hashes: dict[tuple[str, str], bytes] = {}
    for base in workspace.list_shards(skips_unreadable=True):
        with base.database.read() as connection:
            hashes |= document_hashes(connection, [*BROWSABLE_KINDS, "external"])
    return hashes


def _visible_of_all(workspace: Workspace) -> list[tuple[SearchedFile, Row]]:
    listed: list[tuple[SearchedFile, Row]] = []
    for file in workspace.files:
        with contextlib.suppress(FileError), file.database.read() as connection:
            listed += [(file, row) for row in _visible_collections(workspace, file, connection)]
    return listed


def _visible_collections(
    workspace: Workspace,
    file: SearchedFile,
    connection: Connection,
    kinds: Container[str] = (*BROWSABLE_KINDS, "external"),
) -> list[Row]:
    """Everybody's collections and the active project's, which are in the first file."""
    projects = (None, _project_id(workspace, file))
    rows = file.names.collections(connection, kinds)
    return [row for row in rows if row["project_id"] in projects]


def _visible_collection(
    workspace: Workspace, file: SearchedFile, connection: Connection, name: str
) -> Row | None:
    rows = _visible_collections(workspace, file, connection, ALL_KINDS)
    stored = file.names.stored(name)
    # Many programs take the part before the slash for a host and lower its case.
    same = [row for row in rows if row["name"] == stored] or [
        row for row in rows if row["name"].casefold() == stored.casefold()
    ]
    return same[0] if same else None


def _project_id(workspace: Workspace, file: SearchedFile) -> int | None:
    """The active project, whose collections are in the first file."""
    active = workspace.project.active if file.database is workspace.database else None
    return active.project_id if active else None
