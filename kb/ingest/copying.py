"""A copy of the file: for oneself, or for others without what was asked, read and learned."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from kb.disk.read import reason
from kb.errors import FileError
from kb.ingest.forget import erase_documents, write_anew
from kb.store.collections import all_collections, update_source
from kb.store.database import Database
from kb.store.discoveries import stored_discoveries
from kb.store.sharing import forget_paths, forget_use

__all__ = ["Copied", "copy_file"]


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy is."""

    path: Path
    size: int  # bytes
    without_source: list[str] = field(default_factory=list)  # collections, in a copy for others


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
    try:
        unfinished.unlink(missing_ok=True)
        database.copy_to(unfinished, shown=destination)
        lost = _adapt(database, unfinished, share=share)
        unfinished.rename(destination)
    except OSError as error:
        raise FileError(f"cannot write the copy {destination}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return Copied(destination, destination.stat().st_size, lost)


def _adapt(database: Database, copied: Path, *, share: bool) -> list[str]:
    """Make sources right for where the copy is, or leave all out that others need not see."""
    lost: list[str] = []
    with database.read() as connection:
        sources = {row["collection_id"]: row["source"] for row in all_collections(connection)}
    with Database(copied) as copy:
        with copy.write() as connection:
            if share:
                discoveries = stored_discoveries(connection)
                erase_documents(connection, [row["document_id"] for row in discoveries])
                forget_use(connection)
                lost = forget_paths(connection)
            else:
                for row in all_collections(connection):
                    collection_id = row["collection_id"]
                    if row["source"] != sources[collection_id]:
                        update_source(connection, collection_id, sources[collection_id])
        if share and (problem := write_anew(copy)):
            raise FileError(f"the copy cannot be cleaned: {problem}")
    return lost
