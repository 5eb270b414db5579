"""Links between documents of two shards, resolved when somebody reads them.

Each shard stores such a link as unresolved, with the key of its target (`kb/store/citations.py`).
Between files a key has the name of its collection in place of the row id. What is found elsewhere
takes part under row ids below zero. Whether a section exists there is not looked up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from kb.search.files import SearchedFile, Together
from kb.store.citation_graph import NOWHERE, Elsewhere, citations_without_target
from kb.store.citations import documents_of_keys, keys_of, unresolved_keys
from kb.store.collections import all_collections, shard_of
from kb.store.connection import Connection, Row
from kb.store.contents import documents_shown, indexed_document

# A file that is no document here may be one elsewhere.
_OF_COLLECTION = re.compile(r"\A(path|label|file):(\d+)/(.*)\Z", re.DOTALL)
_SCOPES = ("page:", "url:")
_END = "\0"  # of a collection's name in a key


def links_elsewhere(
    together: Together, documents: Collection[str] | None = None
) -> dict[SearchedFile, Elsewhere]:
    """For each file, the documents of other shards that links of some documents lead to.

    Args:
        together: inside its `read`.
        documents: their names, COLLECTION/id; None for all.
    """
    if len(together.files) == 1:
        return dict.fromkeys(together.files, NOWHERE)
    open_keys = together.each(_open_keys, documents)
    all_keys = {key for of_file in open_keys.values() for key in of_file.values()}
    best = _best_documents(together, all_keys)
    rows = {key: {**row, "document_id": -n} for n, (key, row) in enumerate(best.items(), 1)}
    return {
        file: {stored: rows[key] for stored, key in of_file.items() if key in rows}
        for file, of_file in open_keys.items()
    }


def citations_from_elsewhere(
    together: Together, documents: Collection[str]
) -> dict[str, list[Row]]:
    """The citations of each document by documents of other shards, surest first; their `source` is
    COLLECTION/id. Arguments as of `links_elsewhere`."""
    if len(together.files) == 1:
        return {}
    keys = together.each(_keys_of_documents, documents)
    all_keys = {key for of_file in keys.values() for of_one in of_file.values() for key in of_one}
    best = _best_documents(together, all_keys)
    received: dict[str, list[Row]] = {name: [] for of_file in keys.values() for name in of_file}
    for answer in (together.each(_citing, all_keys) if all_keys else {}).values():
        for row in answer:
            target = best.get(row["key"], {})
            name = f"{target.get('collection')}/{target.get('path')}"
            if name in received:
                received[name].append(row)
    for rows in received.values():
        rows.sort(key=lambda row: (-row["confidence"], row["source"], row["line"]))
    return received


def _best_documents(together: Together, keys: Collection[str]) -> dict[str, Row]:
    """The document of all shards that answers best to each key."""
    best: dict[str, tuple[Any, Row]] = {}
    for answer in (together.each(_documents_of, keys) if keys else {}).values():
        for key, (order, row) in answer.items():
            if key not in best or order < best[key][0]:
                best[key] = order, row
    return {key: row for key, (_, row) in best.items()}


def ids_of(file: SearchedFile, connection: Connection, names: Collection[str]) -> dict[str, int]:
    """The row ids of those documents that a file has, by their names COLLECTION/id."""
    ids = {}
    for row in file.names.collections(connection, named=True):
        prefix = f"{file.names.told_apart(row['name'])}/"
        for name in names:
            if name.startswith(prefix):
                path = name.removeprefix(prefix)
                if stored := indexed_document(connection, row["collection_id"], path):
                    ids[name] = int(stored["document_id"])
    return ids


def _open_keys(
    file: SearchedFile, connection: Connection, documents: Collection[str] | None
) -> dict[str, str]:
    """The keys of a shard's unresolved links, as they are stored and between files, a step."""
    if shard_of(connection) is None:
        return {}
    ids = None if documents is None else [*ids_of(file, connection, documents).values()]
    return _between_files(connection, unresolved_keys(connection, ids))


def _documents_of(
    file: SearchedFile, connection: Connection, keys: Collection[str]
) -> dict[str, tuple[Any, Row]]:
    """A shard's best document for each key, and how good that is, a step."""
    if shard_of(connection) is None:
        return {}
    stored = _stored(connection, keys)
    best: dict[str, tuple[Any, int]] = {}
    for key, document_id, _, path, rank, is_shared in documents_of_keys(connection, stored):
        order = rank, path.count("/"), path
        if not is_shared:  # what one project holds stays invisible to the others
            continue
        if stored[key] not in best or order < best[stored[key]][0]:
            best[stored[key]] = order, document_id
    shown = documents_shown(connection, (document_id for _, document_id in best.values()))
    return {key: (order, shown[document_id]) for key, (order, document_id) in best.items()}


def _keys_of_documents(
    file: SearchedFile, connection: Connection, documents: Collection[str]
) -> dict[str, set[str]]:
    """Between files, the keys that some documents of a shard answer to, a step."""
    if shard_of(connection) is None:
        return {}
    return {
        name: {*_between_files(connection, keys_of(connection, id_)).values()}
        for name, id_ in ids_of(file, connection, documents).items()
    }


def _citing(file: SearchedFile, connection: Connection, keys: Collection[str]) -> list[Row]:
    """The unresolved citations of a shard that have some keys, each with its `key`, a step."""
    if shard_of(connection) is None:
        return []
    stored = _stored(connection, keys)
    rows = citations_without_target(connection, [*stored])
    shown = documents_shown(connection, {row["source_document_id"] for row in rows})
    names = file.names.of_documents(shown)
    shared = {row["name"] for row in all_collections(connection) if row["project_id"] is None}
    return [
        {
            **row,
            "key": stored[row["target_key"]],
            "source": names[row["source_document_id"]],
            "shown": shown[row["source_document_id"]],
        }
        for row in rows
        if shown[row["source_document_id"]]["collection"] in shared
    ]


def _between_files(connection: Connection, keys: Iterable[str]) -> dict[str, str]:
    names = {str(row["collection_id"]): row["name"] for row in all_collections(connection)}
    between = {}
    for key in keys:
        if match := _OF_COLLECTION.match(key):
            scope = "path" if match[1] == "file" else match[1]
            between[key] = f"{scope}:{names.get(match[2], '')}{_END}{match[3]}"
        elif key.startswith(_SCOPES):
            between[key] = key
    return between


def _stored(connection: Connection, keys: Iterable[str]) -> dict[str, str]:
    """Keys as a file stores them, with what they are between files."""
    ids = {row["name"]: row["collection_id"] for row in all_collections(connection)}
    stored = {}
    for key in keys:
        start, end, rest = key.partition(_END)
        scope, _, name = start.partition(":")
        if not end:
            stored[key] = key
        elif name in ids:
            stored[f"{scope}:{ids[name]}/{rest}"] = key
            if scope == "path":  # a sync may have found the file of another shard's document
                stored[f"file:{ids[name]}/{rest}"] = key
    return stored
