"""Room that edits leave behind: given back, so that a file does not grow by being kept up to date.

The keyword index takes a change as a new segment: the terms of the new text, and marks for those of
the old one, which stays where it was. FTS5 merges segments by itself only when there are several of
a size, so that 50 syncs doubled it. Here they are merged as soon as the newer ones are a
few hundredths of the oldest. That costs as much as adding thirty times the text that was changed,
which is little: merging is a hundred times as fast as reading a document.
"""

from __future__ import annotations

from kb.store.connection import Connection
from kb.store.database import Database

MOST_WASTE = 0.03  # the newer segments' share of the index, beyond which they are merged
STEP = 64  # pages of the index that one transaction writes: some 3 ms
FREE_SHARE = 0.01  # of the file that may be pages without use: the next change takes them


def tidy(database: Database) -> None:
    """Merge what changes have left in the index, and give free pages back. Call it after a sync.

    Each step is a transaction: others write in between, and a kill loses nothing.
    """
    more = True
    while more:
        with database.write() as connection:
            more = tidy_a_little(connection)


def tidy_a_little(connection: Connection) -> bool:
    """One step of it, for a call that changes one document. Whether there is more to do."""
    more = _merge(connection)
    connection.release_pages(FREE_SHARE)
    return more


def _merge(connection: Connection) -> bool:
    """Merge some pages of the index where changes have left enough; whether they did."""
    *newer, largest = sorted(pages for _, pages in connection.tuples("keyword_segments")) or [0]
    if sum(newer) <= MOST_WASTE * largest:
        return False
    before = connection.changes()
    connection.run("merge_keyword_index", pages=-STEP)  # a negative number: towards one segment
    return connection.changes() - before > 1  # by FTS5's documentation, less is nothing
