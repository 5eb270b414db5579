"""A copy of the file: for oneself, or for others without questions, reads and discoveries."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kb.disk.read import reason
from kb.errors import FileError
from kb.ingest.forget import erase_documents, write_anew
from kb.ingest.reach import take_along
from kb.results.care import Copied
from kb.store.collections import all_collections, update_source
from kb.store.copies import forget_paths, forget_use
from kb.store.database import Database
from kb.store.discoveries import stored_discoveries
from kb.store.mark import Mark


def copy_file(database: Database, destination: Path, *, share: bool = False) -> Copied:
    """Write a clean, compact copy.

    Args:
        share: leave out sessions with their questions, reads, discoveries, counts of calls, and
            paths of this machine, with every trace of them.

    Raises:
        FileError: the destination exists already, or cannot be written.
    """
    if destination.exists():
        raise FileError(f"{destination} exists already: choose another name or remove it")
    unfinished = destination.with_name(f"{destination.name}.adapted")
    with database.read() as connection:
        rows = all_collections(connection)
    try:
        unfinished.unlink(missing_ok=True)
        database.copy_to(unfinished, shown=destination)
        without_source = None
        with Database(unfinished) as copy:
            if share:
                without_source = _forget_private(copy)
            else:  # relative sources lead elsewhere from there
                before: dict[int, str] = {row["collection_id"]: row["source"] for row in rows}
                with copy.write() as connection:
                    for row in all_collections(connection):
                        source = before.get(row["collection_id"])
                        if source is not None and row["source"] != source:
                            update_source(connection, row["collection_id"], source)
        unfinished.rename(destination)
        mark = Mark(destination)  # what this user confirmed of a file holds for the copy
        if database.mark.is_own:
            mark.confirm_file()
        for row in rows:
            take_along(database, row, mark)
    except OSError as error:
        raise FileError(f"cannot write the copy {destination}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    size = destination.stat().st_size
    return Copied(copy=str(destination), bytes=size, without_source=without_source)


def _forget_private(copy: Database) -> list[str]:
    """Delete what others need not see; the collections that lose their source."""
    with copy.write() as connection:
        discoveries = stored_discoveries(connection)
        erase_documents(connection, [row["document_id"] for row in discoveries])
        forget_use(connection)
        without_source = forget_paths(connection)
    if problem := write_anew(copy):
        raise FileError(f"the copy cannot be cleaned: {problem}")
    return without_source
