"""Finds the document that somebody names: by its id, its path on disk, or the end of its id."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kb.errors import DocumentNotFound, UsageError
from kb.library.workspace import Workspace
from kb.search.files import SearchedFile
from kb.sources.address import local
from kb.store.connection import Connection, Row
from kb.store.contents import document_paths
from kb.text.file_names import on_disk, storable
from kb.text.nearest import nearest

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
    parts, _ = workspace.read_each(partial(_documents, name, text))
    listed = [collection for part in parts for collection in part]
    if name and not listed:
        with workspace.read_collection(name):
            pass  # raises with the nearest names
    typed = _normal(text)
    by_name = {item.shown: item for item in listed}
    documents = [(shown, path) for shown, item in by_name.items() for path in item.paths]
    matches = (
        [document for document in documents if _normal(document[1]) == typed]
        or [
            (item.shown, path)
            for item in listed
            for shown in map(_normal, dict.fromkeys((item.shown, item.row["name"])))
            for path in item.paths
            if typed in (f"{shown}/{_normal(path)}", f"{shown}:{_normal(path)}")
        ]
        or _on_disk(text, listed)
        or [document for document in documents if _normal(document[1]).endswith(f"/{typed}")]
    )
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = ", ".join(map("/".join, matches[:5]))
        raise UsageError(f"{text} names {len(matches)} documents: say {choices}")
    where = f'collection "{name}"' if name else "any collection"
    hint = (
        "" if documents else " Nothing is stored there yet: `kb add FOLDER` or `kb sync` does it."
    )
    raise DocumentNotFound(
        f'Document "{text}" not found in {where}.{hint}',
        suggestions=nearest(text, [path for _, path in documents]),
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


@contextlib.contextmanager
def open_document(workspace: Workspace, document: str, collection: str) -> Iterator[OpenDocument]:
    """A document by its collection and id or, without a collection, as `resolve` finds it."""
    if not collection:
        collection, document = resolve(workspace, document, "")
    with workspace.read_collection(collection) as (connection, row, file):
        stored = file.names.document(connection, row, document, file.names.called(row).collection)
        yield OpenDocument(stored, connection, row, file)


class _Listed(NamedTuple):
    shown: str  # how it is called among all files
    row: Row
    paths: list[str]


def _documents(name: str, text: str, file: SearchedFile, connection: Connection) -> list[_Listed]:
    if name:
        row = file.names.find(connection, name)
        rows = [row] if row is not None else []
    else:
        named = file.names.collections(connection, named=True)
        rows = [r for r in named if r["project_id"] is None or text.startswith(r["name"])]
    return [
        _Listed(
            file.names.called(row).collection, row, document_paths(connection, row["collection_id"])
        )
        for row in rows
    ]


def _normal(text: str) -> str:
    """A name as it compares: a Mac decomposes accents, keyboards do not."""
    return unicodedata.normalize("NFC", text)


def _on_disk(text: str, listed: Sequence[_Listed]) -> list[tuple[str, str]]:
    file = Path(text if os.path.lexists(text) else on_disk(text)).expanduser()
    places = {Path(os.path.normpath(file.absolute())), file.resolve()}
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
