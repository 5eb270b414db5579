"""From what somebody types to a document: its id, its path on disk, the end of its id."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kb.errors import DocumentNotFound, UsageError
from kb.search.files import SearchedFile, Together
from kb.sources.address import local
from kb.store.connection import Connection, Row
from kb.store.contents import document_paths
from kb.text.file_names import on_disk, storable
from kb.text.nearest import nearest
from kb.tools.session import Session

__all__ = ["resolve", "resolve_lines"]

_LINES = re.compile(r"(.+?):(\d++)(-?)(\d*+)$")  # "a.md:3", "a.md:3-5", "a.md:3-"


def resolve_lines(kb: Session, text: str, name: str) -> tuple[str, str, int, int]:
    """As `resolve`, for a document with lines behind it: the first and the last, 0 for none.

    Raises:
        DocumentNotFound: nothing is called so.
        UsageError: several are, or line 0 is meant.
    """
    try:
        return *resolve(kb, text, name), 0, 0
    except DocumentNotFound:
        if not (match := _LINES.match(text)):
            raise
    first = int(match[2])
    last = int(match[4] or 0) if match[3] else first
    if not first:
        raise UsageError("lines count from 1")
    return *resolve(kb, match[1], name), first, last


def resolve(kb: Session, text: str, name: str) -> tuple[str, str]:
    """The collection and id of the document that somebody means.

    Tried in order: an id in the named or any collection, `COLLECTION/id`, a path on disk inside
    a collection's folder, the end of one id.
    """
    together = Together(kb.files)
    with together.read():
        listed = [one for own in together.each(partial(_documents, name)).values() for one in own]
    if name and not listed:
        with kb.read_collection(name):
            pass  # raises, with the near names
    documents = {one.shown: one.paths for one in listed}
    wanted = _normal(text)
    everything = [(name, path) for name, paths in documents.items() for path in paths]
    found = [(name, path) for name, path in everything if _normal(path) == wanted]
    if not found:
        found = [
            (one.shown, path)
            for one in listed
            for shown in dict.fromkeys((one.shown, one.row["name"]))
            for path in one.paths
            if wanted in (f"{_normal(shown)}/{_normal(path)}", f"{_normal(shown)}:{_normal(path)}")
        ]
    if not found:
        found = _on_disk(text, listed)
    if not found:
        found = [(name, path) for name, path in everything if _normal(path).endswith(f"/{wanted}")]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{name}/{path}" for name, path in found[:5])
        raise UsageError(f"{text} names {len(found)} documents: say {choices}")
    where = f'collection "{name}"' if name else "any collection"
    hint = (
        "" if everything else " Nothing is stored there yet: `kb add FOLDER` or `kb sync` does it."
    )
    raise DocumentNotFound(
        f'Document "{text}" not found in {where}.{hint}',
        suggestions=nearest(text, [path for _, path in everything]),
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """A collection with the ids of its documents."""

    shown: str  # how it is called among all files
    row: Row
    paths: list[str]


def _documents(name: str, file: SearchedFile, connection: Connection) -> list[_Listed]:
    """The collections of a file with their documents; with a name only the one called so."""
    rows = file.names.collections(connection)
    if name:
        row = file.names.find(connection, name)
        rows = [row] if row is not None else []
    return [
        _Listed(
            file.names.called(row).collection,
            row,
            document_paths(connection, row["collection_id"]),
        )
        for row in rows
    ]


def _normal(text: str) -> str:
    """A name as it compares: a Mac writes accents apart, keyboards do not."""
    return unicodedata.normalize("NFC", text)


def _on_disk(text: str, listed: Sequence[_Listed]) -> list[tuple[str, str]]:
    file = Path(text if os.path.lexists(text) else on_disk(text)).expanduser()
    places = {Path(os.path.normpath(file.absolute())), file.resolve()}
    found = []
    for one in listed:
        root = local(one.row["source"])
        for place in places:
            if place == root:  # a collection of one file
                path = storable(root.name)
            elif place.is_relative_to(root):
                path = storable(place.relative_to(root).as_posix())
            else:
                continue
            found += [(one.shown, p) for p in one.paths if _normal(p) == _normal(path)]
    return list(dict.fromkeys(found))
