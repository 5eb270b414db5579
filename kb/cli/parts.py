"""`kb split` and `kb merge`: collections move between files, with their vectors."""

from __future__ import annotations

import argparse
from pathlib import Path

from kb.cli import render
from kb.cli.progress import progress
from kb.errors import FileError, UsageError
from kb.ingest.move import Moved, move_collection
from kb.store.collections import all_collections
from kb.store.database import Database
from kb.store.names import ALL_KINDS, Names
from kb.text.counted import counted
from kb.tools.session import Session


def split(kb: Session, options: argparse.Namespace) -> int:
    """Move the named collections into another file."""
    path = _other(kb, options.file)
    if not path.exists() and not path.parent.is_dir():
        raise FileError(f"the folder {path.parent} does not exist: make it first")
    with kb.database.read() as connection:
        for name in options.names:
            kb.names.collection(connection, name, ALL_KINDS)  # before a file is made
    with Database(path) as target:
        return _move(kb.names, kb.database, target, options)


def merge(kb: Session, options: argparse.Namespace) -> int:
    """Move collections of another file into this one."""
    with Database(_other(kb, options.file), create=False) as source:
        return _move(kb.names, source, kb.database, options)


def _other(kb: Session, path: Path) -> Path:
    path = path.expanduser()
    if path.exists() and path.samefile(kb.database.path):
        raise UsageError(f"{path} is the file itself: name another one")
    return path


def _move(names: Names, source: Database, target: Database, options: argparse.Namespace) -> int:
    with source.read() as connection:
        rows = (
            [names.collection(connection, name, ALL_KINDS) for name in options.names]
            if options.names
            else [
                row
                for row in all_collections(connection)
                if row["project_id"] is None and (row["has_documents"] or row["source"])
            ]
        )
    moved: list[Moved] = []
    with progress(options) as show:
        moved += [move_collection(source, target, row, show) for row in rows]
    result = [
        {
            "collection": one.collection,
            "name": one.name,
            "documents": one.documents,
            "waiting": one.waiting,
        }
        for one in moved
    ]
    lines = [
        f"{one.collection}: {counted(one.documents, 'document')} moved to {target.path}"
        + (f" as {one.name}" if one.name != one.collection else "")
        for one in moved
    ]
    if waiting := sum(one.waiting for one in moved):
        wait = counted(waiting, "passage waits", "passages wait")
        lines.append(f"{wait} there for a vector: run `kb sync`")
    if not options.quiet or options.json:
        render.text({"moved": result}, "\n".join(lines), options)
    return 0 if moved else 1
