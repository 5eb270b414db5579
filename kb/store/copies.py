"""Copies of a file: whole, and for others without what tells of this user and machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from kb.disk.holders import sqlite_name
from kb.disk.read import reason
from kb.disk.write import create_like
from kb.errors import FileError
from kb.sources.address import is_absolute
from kb.store.collections import update_source
from kb.store.connection import Connection


def vacuum_into(connection: apsw.Connection, source: Path, destination: Path, shown: Path) -> None:
    """Write one clean, compact copy of a connection's file, with the mode of `source`.

    Raises FileError if the destination, named as `shown`, exists or cannot be written.
    """
    if destination.exists():
        raise FileError(f"{destination} exists already: choose another name or remove it")
    if not destination.parent.is_dir():
        raise FileError(f"the folder {destination.parent} does not exist: make it first")
    unfinished = destination.with_name(f"{destination.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # VACUUM wants none
        connection.pragma("query_only", False)  # which forbids VACUUM INTO
        create_like(unfinished, source if source.exists() else Path())
        connection.execute("VACUUM INTO ?", (sqlite_name(unfinished),))
        unfinished.rename(destination)
    except apsw.InterruptError:
        raise
    except (OSError, apsw.Error) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise FileError(f"cannot write the copy {shown}: {why}", path=str(shown)) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def forget_use(connection: Connection) -> None:
    """Leave out who read and asked what, and who may: sessions, reads, calls, tokens."""
    for statement in (
        *("delete_all_events", "delete_all_sessions", "delete_all_accesses"),
        *("delete_all_calls", "delete_all_tokens"),
    ):
        connection.run(statement)


def forget_paths(connection: Connection) -> list[str]:
    """Leave out where documents come from on this machine; the collections left without a source.

    A project is a folder of this machine: its documentation now belongs to the whole copy.
    """
    connection.run("detach_from_projects")
    connection.run("delete_all_projects")
    lost = []
    for collection_id, name, source in connection.tuples("sources_as_kept"):
        if is_absolute(source):
            update_source(connection, collection_id, "")
            lost.append(name)
    return lost
