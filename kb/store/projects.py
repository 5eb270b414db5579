"""The projects that were activated, and the collection of external documentation of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kb.store.connection import Connection, Row
from kb.store.contents import with_source
from kb.text.file_names import on_disk
from kb.text.times import utc_now


def find_project(connection: Connection, key: Mapping[str, str]) -> int | None:
    """The row id of a project, by its `name`, `branch` and `path_hash`."""
    project_id: int | None = connection.value("find_project", **key)
    return project_id


def store_project(connection: Connection, key: Mapping[str, str], root: str) -> int:
    """Note that a project is active; its row id."""
    connection.run("upsert_project", root=root, activated_at=utc_now(), **key)
    return connection.count("find_project", **key)


def path_hash(root: Path) -> str:
    """A folder's hash: the first 16 hex digits of the SHA-256 of its path, "/" between names."""
    import hashlib  # here: few commands ask

    path = root.as_posix().rstrip("/") or "/"
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def all_projects(connection: Connection) -> list[Row]:
    """Every project on each branch and in each folder: `project_id`, `path_hash`, `root`."""
    return connection.rows("projects")


def projects_around(connection: Connection, folder: Path) -> set[int]:
    """The row ids of the projects that a folder lies in, on all their branches.

    One whose own folder is gone counts too: it was moved, or the file was copied to where it is.
    """
    around = {path_hash(place) for place in (folder, *folder.parents)}
    return {
        row["project_id"]
        for row in all_projects(connection)
        if row["path_hash"] in around or not os.path.exists(on_disk(row["root"]))
    }


def project_roots(connection: Connection, name: str) -> dict[str, str]:
    """The folders in which projects of a name were activated, by their path hashes."""
    return dict(connection.tuples("project_roots", name=name))


def move_project(connection: Connection, key: Mapping[str, str], old_hash: str, root: str) -> None:
    """Note that a project, on all its branches, has moved to where `key` says."""
    names = {"name": key["name"], "path_hash": key["path_hash"], "old_hash": old_hash}
    connection.run("move_project", root=root, **names)
    connection.run("move_external_collections", **names)


def external_collection(connection: Connection, project_id: int | None) -> Row | None:
    row = connection.row("external_collection", project_id=project_id)
    return None if row is None else with_source(connection, row)


def external_documents(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, Row]:
    """What is shown of each chunk's document, with the chunk's lines."""
    rows = connection.rows("external_documents", chunk_ids=[*chunk_ids])
    return {row["chunk_id"]: row for row in rows}
