"""Give back the room that edits leave behind, so that a file kept up to date does not grow.

The keyword index takes a change as a new segment: the terms of the new text, and marks for those of
the old one, which stays. FTS5 merges segments by itself only when there are several of a size, so
50 syncs doubled it. Here they are merged once the newer ones are a few hundredths of the oldest.
That costs as much as adding thirty times the text that was changed, which is little: merging is a
hundred times as fast as reading a document.

Pages of `documents` and `chunks` keep room when rows in their middle change their size. A file that
is not large is written anew when that room is more than a few hundredths of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from kb.errors import BusyError, FileError
from kb.store.connection import Connection
from kb.store.database import Database

MOST_WASTE = 0.03  # the newer segments' share of the index, beyond which they are merged
STEP = 64  # pages of the index that one transaction writes: some 3 ms
FREE_SHARE = 0.01  # of the file that may be pages without use: the next change takes them
MOST_ROOM = 0.02  # of the file that may be room inside of pages which a new file would not have
# Bytes of a file that is written anew, in some .4 s. In a larger one a change is a smaller part.
LARGEST_ANEW = 64_000_000
# What a row takes beside its texts: its numbers, their types, its place in the page.
DOCUMENT_OVERHEAD = 50
CHUNK_OVERHEAD = 34


def tidy(database: Database) -> None:
    """Merge what changes have left in the index, and give free pages back. Call it after a sync.

    Each step is a transaction: others write in between, and a kill loses nothing.
    """
    more = True
    while more:
        with database.write() as connection:
            more = tidy_a_little(connection)


def close_ranks(database: Database) -> None:
    """Write the file anew where changes have left its pages half empty. Call it after `tidy`.

    A large file stays as it is, and so does one that is replicated, whose copy would be sent whole.
    """
    if database.in_memory or database.is_replicated:
        return
    with database.read() as connection:
        size, page = connection.size()
        if size > LARGEST_ANEW or surplus_pages(connection) * page <= MOST_ROOM * size:
            return
    with contextlib.suppress(BusyError, FileError):  # of somebody who writes, or for want of room
        database.compact()


def tidy_a_little(connection: Connection) -> bool:
    """One step of tidying, for a call that changes one document; whether there is more to do."""
    *newer, largest = sorted(pages for _, pages in connection.tuples("keyword_segments")) or [0]
    before = connection.changes()
    if sum(newer) > MOST_WASTE * largest:
        connection.run("merge_keyword_index", pages=-STEP)  # a negative number: towards one segment
    more = connection.changes() - before > 1  # by FTS5's documentation, less is nothing
    connection.release_pages(FREE_SHARE)
    return more


def surplus_pages(connection: Connection) -> int:
    """How many pages of documents and chunks a newly written file would save."""
    _, page = connection.size()
    surplus = 0
    for table, statement, overhead in (
        ("documents", "document_sizes", DOCUMENT_OVERHEAD),
        ("chunks", "chunk_sizes", CHUNK_OVERHEAD),
    ):
        rows = (size + overhead for (size,) in connection.iterate(statement))
        surplus += connection.value("leaf_pages", table=table) - _full_pages(rows, page)
    return surplus


def _full_pages(rows: Iterable[int], page: int) -> int:
    """The pages that rows of these sizes fill; of a long row the beginning (B-tree Cell Format)."""
    most = page - 35
    least = (page - 12) * 32 // 255 - 23
    pages = room = 0
    for row in rows:
        local = row
        if row > most:
            local = least + (row - least) % (page - 4)
            local = (least if local > most else local) + 4
        if local > room:
            pages, room = pages + 1, page - 8
        room -= local
    return pages
