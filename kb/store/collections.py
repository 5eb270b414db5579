"""Collections, and how people and assistants name them and their documents.

Whatever changes a collection is called in a write transaction. To delete one with its documents is
`kb.store.documents.delete_collection`.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Container, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from kb.errors import CollectionNotFound, DocumentNotFound
from kb.settings import DEFAULT_INDEX
from kb.sources.address import kept
from kb.store.connection import Connection, Row
from kb.store.contents import (
    WHOLE_FILE,
    Ranges,
    document_paths,
    find_document,
    ranges_of,
    with_source,
)
from kb.store.projects import projects_around
from kb.text.nearest import nearest
from kb.text.times import utc_now


def all_collections(connection: Connection) -> list[Row]:
    """Every collection, by name; `has_documents` instead of their number, which takes time."""

    def read() -> list[Row]:
        return [with_source(connection, row) for row in connection.rows("collections")]

    return [{**row} for row in connection.once("collections", read)]


def unstored_row(name: str, **fields: Any) -> Row:
    """A row of `collections` that is not stored yet. No collection has the id 0."""
    return {
        "collection_id": 0,
        "name": name,
        "kind": "documents",
        "source": "",
        "include": "[]",
        "exclude": "[]",
        "options": "{}",
        "description": None,
        "version": None,
        "project_id": None,
        "synced_at": None,
        **fields,
    }


def find_collection_id(connection: Connection, name: str) -> int | None:
    collection_id: int | None = connection.value("collection_id", name=name)
    return collection_id


def collection_name(connection: Connection, collection_id: int) -> str | None:
    name: str | None = connection.value("collection_name", collection_id=collection_id)
    return name


def collection_names_from(connection: Connection, prefix: str, limit: int) -> list[str]:
    """Names of collections with this beginning, for a shell."""
    return connection.column("collection_names_from", prefix=prefix, limit=limit)


def file_mark(connection: Connection) -> str:
    """What all copies of a file have in common, and no other file has; "" where it holds nothing.

    Collections keep when they were made, and from what.
    """
    rows = connection.tuples("collection_marks")
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] if rows else ""


def shard_of(connection: Connection) -> list[int] | None:
    """Remainder and divisor of what a shard has (`kb.ingest.copying`); None without shards."""
    options = (json.loads(row["options"]) for row in all_collections(connection))
    return next((each["shard"] for each in options if "shard" in each), None)


def store_collection(connection: Connection, row: Row) -> int:
    """Make a collection, or change the one that has the row's id. Returns its row id."""
    fields = {**row, "source": kept(row["source"], connection.project), "created_at": utc_now()}
    if row["collection_id"]:
        connection.run("update_collection", **fields)
        return int(row["collection_id"])
    connection.run("insert_collection", **fields)
    return connection.last_id()


def insert_collection(
    connection: Connection, name: str, kind: str, options: Mapping[str, Any] | None = None
) -> int:
    """Make an empty collection that tool calls fill. Returns its row id."""
    written = json.dumps(options or {}, ensure_ascii=False)
    return store_collection(connection, unstored_row(name, kind=kind, options=written))


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or if it is taken the name with the lowest free number behind it."""
    names = (f"{name}-{number}" if number > 1 else name for number in count(1))
    return next(free for free in names if free not in taken)


def update_source(connection: Connection, collection_id: int, source: str) -> None:
    connection.run(
        "update_source", collection_id=collection_id, source=kept(source, connection.project)
    )


def update_options(connection: Connection, collection_id: int, options: str) -> None:
    connection.run("update_collection_options", collection_id=collection_id, options=options)


def finish_sync(
    connection: Connection,
    collection_id: int,
    version: str | None = None,
    description: str | None = None,
    source: str = "",
) -> None:
    """Note the end of a complete sync, and what the source's manifest says; None keeps that.

    Args:
        source: is written relative to the project where it lies in it and is still absolute.
    """
    connection.run(
        "finish_collection_sync",
        collection_id=collection_id,
        synced_at=utc_now(),
        version=version,
        description=description,
        source=source,
        shorter=kept(source, connection.project) if source else source,
    )


def delete_row(connection: Connection, collection_id: int) -> None:
    connection.run("delete_collection", collection_id=collection_id)


def find_index_row(connection: Connection, name: str) -> Row | None:
    return connection.row("index_by_name", name=name)


def index_names(connection: Connection) -> list[str]:
    return connection.column("index_names")


# What the documents tools see: not external documentation (one project's), not discoveries.
BROWSABLE_KINDS = ("documents", "archive", "index")
ALL_KINDS = (*BROWSABLE_KINDS, "external", "discoveries")

Labels = dict[int, dict[str, str]]  # how each collection is shown, by its row id


class Called(NamedTuple):
    """How a collection is shown: its alias with the full id beside it, or its id alone."""

    collection: str
    collection_id: str | None


class Names:
    """Collections and documents by name.

    Args:
        aliases: alias -> collection id, as a project's and the user's settings have them.
        notices: what the user should know of the files that the aliases come from.
        shared: how collections are shown whose names another open file has as well, by name.
        inside: a folder of somebody who may also name the external documentation of the projects
            around it.
    """

    def __init__(
        self,
        aliases: Mapping[str, str],
        notices: Sequence[str] = (),
        shared: Mapping[str, str] | None = None,
        inside: Path | None = None,
    ) -> None:
        self.inside = inside
        self.notices = notices
        self.aliases = aliases
        self._shared = shared or {}
        self._by_shown = {shown: name for name, shown in self._shared.items()}

    def collections(
        self, connection: Connection, kinds: Container[str] | None = None, *, named: bool = False
    ) -> list[Row]:
        """The collections by name; indexes also while they are empty.

        Args:
            kinds: of these kinds; by default all that the documents tools browse.
            named: with what else can be named, by default only alone.
        """
        projects = projects_around(connection, self.inside) if named and self.inside else set()
        rows = [
            row
            for row in all_collections(connection)
            if row["has_documents"] or row["source"] or row["kind"] == "index"
        ]
        if kinds is not None:
            return [row for row in rows if row["kind"] in kinds]
        # External docs that no project owns were added by hand (`kb add --kind external`).
        owners = {None, *projects}
        return [
            row
            for row in rows
            if row["kind"] in BROWSABLE_KINDS
            or (row["kind"] == "external" and row["project_id"] in owners)
        ]

    def find(
        self, connection: Connection, name: str, kinds: Container[str] | None = None
    ) -> Row | None:
        """A collection by its id or an alias; `kinds` as in `collections`."""
        stored = self.stored(name)
        for row in self.collections(connection, kinds, named=True):
            if row["name"] == stored:
                return row
        is_default = stored == DEFAULT_INDEX and kinds is None
        return unstored_row(stored, kind="index", has_documents=0) if is_default else None

    def collection(
        self,
        connection: Connection,
        name: str,
        kinds: Container[str] | None = None,
        others: Sequence[str] = (),
    ) -> Row:
        """As `find`; `others` may be meant. Raises CollectionNotFound with the nearest names."""
        if (row := self.find(connection, name, kinds)) is not None:
            return row
        existing = sorted({*others, *self.existing(connection, kinds)})
        near = nearest(name, existing)
        hint = f" There are: {json.dumps(existing[:10], ensure_ascii=False)[1:-1]}."
        if near:
            hint = f""" Did you mean "{'" or "'.join(near)}"?"""
        elif not existing:
            hint = " The file holds no collection yet: add one with `kb add FOLDER`."
        notice: dict[str, Any] = {"notice": "; ".join(self.notices)} if self.notices else {}
        raise CollectionNotFound(
            f'Collection "{name}" not found.{hint}',
            collection=name,
            suggestions=near or existing[:10],
            **notice,
        )

    def existing(self, connection: Connection, kinds: Container[str] | None = None) -> set[str]:
        """All names that collections have, aliases among them; `kinds` as in `collections`."""
        rows = {row["name"] for row in self.collections(connection, kinds, named=True)}
        return {
            *map(self.told_apart, rows),
            *(alias for alias, name in self.aliases.items() if name in rows),
        }

    def stored(self, name: str) -> str:
        """The name in the file that a name or an alias stands for."""
        return self._by_shown.get(name) or self.aliases.get(name, name)

    def everywhere(self, document: str) -> str:
        """A document's name, COLLECTION/id, among all open files."""
        collection, slash, path = document.partition("/")
        return f"{self.told_apart(collection)}{slash}{path}"

    def of_documents(self, rows: Mapping[int, Row]) -> dict[int, str]:
        """As `everywhere`, of `documents_shown`, by id."""
        return {
            document_id: self.everywhere(f"{row['collection']}/{row['path']}")
            for document_id, row in rows.items()
        }

    def told_apart(self, name: str) -> str:
        """A collection's name, with its file's where another file has the same."""
        return self._shared.get(name, name)

    def called(self, row: Row) -> Called:
        shown = self.shown(row)
        return Called(shown["collection"], shown.get("collectionId"))

    def shown(self, row: Row) -> dict[str, str]:
        """As `called`, by the keys that are sent."""
        name = row["name"]
        if name in self._shared:
            return {"collection": self._shared[name]}
        alias = next((alias for alias, full in self.aliases.items() if full == name), "")
        return {"collection": alias, "collectionId": name} if alias else {"collection": name}

    def document(self, connection: Connection, collection: Row, path: str, shown: str) -> Row:
        """A document with its text. Raises DocumentNotFound, with the nearest ids."""
        collection_id = collection["collection_id"]
        if document := find_document(connection, collection_id, path):
            return document
        paths = document_paths(connection, collection_id)
        # In another Unicode normal form, or with `./` in front.
        form = unicodedata.normalize("NFC", path.removeprefix("./"))
        same = [other for other in paths if unicodedata.normalize("NFC", other) == form]
        if len(same) == 1 and (document := find_document(connection, collection_id, *same)):
            return document
        raise DocumentNotFound(
            f'Document "{path}" not found in collection "{shown}".',
            near=lambda: nearest(path, paths),
            collection=shown,
            document=path,
        )

    def ranges(
        self, connection: Connection, names: Sequence[str], *, some: bool = False
    ) -> tuple[Ranges, Labels]:
        """Where to search, and how each collection there is shown; [] means everywhere.

        Raises CollectionNotFound if a name does not exist, unless only `some` have to.
        """
        if names and some:
            rows = [row for name in names if (row := self.find(connection, name)) is not None]
        elif names:
            rows = [self.collection(connection, name) for name in names]
        else:
            rows = self.collections(connection)
        shown = {row["collection_id"]: self.shown(row) for row in rows}
        everything = not names and len(shown) == len(all_collections(connection))
        return ([WHOLE_FILE] if everything else ranges_of(shown)), shown
