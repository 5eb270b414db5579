"""A file comes back from its copy."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kb.errors import FileError, UsageError
from kb.store.collections import all_collections
from kb.store.contents import count_documents
from kb.store.database import Database
from kb.store.replicated import litestream_folder
from kb.store.replication import litestream
from kb.store.replication.destination import Destination

__all__ = ["Restored", "restore"]


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that is back."""

    size: int
    documents: int


def restore(destination: Destination, file: Path, at: str = "") -> Restored:
    """Write the file from its copy.

    Args:
        at: a time; the file is then as it was at that time.

    Raises:
        FileError: there is a file already, or what comes back is none of kb.
        SourceError: there is no copy, or it cannot be read.
        UsageError: the time is none.
    """
    if at:
        at = _time(at)
    for place in (file, Path(f"{file}-wal")):
        if place.exists():
            raise FileError(
                f"{place} is there already, and would be lost: move it away, or name another file "
                "with --db",
                path=str(place),
            )
    if not file.absolute().parent.is_dir():
        raise FileError(f"the folder {file.parent} does not exist: make it first")
    litestream.restore(destination, file, at)
    for name in (f"{file}-shm", f"{file}-wal"):  # of Litestream's own look at it
        Path(name).unlink(missing_ok=True)
    # What Litestream knew of the file that was here is not true of this one.
    shutil.rmtree(litestream_folder(file), ignore_errors=True)
    with Database(file, create=False) as database:
        with database.write():
            pass  # the last to leave an ordinary file gives it its own kind of journal
        with database.read() as connection:
            rows = all_collections(connection)
            documents = sum(count_documents(connection, row["collection_id"]) for row in rows)
    return Restored(file.stat().st_size, documents)


def _time(text: str) -> str:
    """A time as Litestream takes it: with a zone, which is the local one if none is given."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError as error:
        raise UsageError(f"{text} is no time such as 2026-11-28T12:00:00Z") from error
