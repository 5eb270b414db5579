"""The write-ahead log of a file: merged after a write, and kept from growing without end.

A file is in WAL mode while somebody writes, so that readers never wait. When a `write()` or a
`batch()` of a `Database` ends, the log is merged into the file and emptied, so that a copy of the
`.db` alone is complete; when the last connection closes, the file goes back to the DELETE journal
and no `-wal` or `-shm` stays behind. While another process stays inside a read, what is newer than
its state cannot be merged: `waits` says so.

A file that Litestream replicates stays in WAL mode, and nobody here merges its log: a log that was
merged behind Litestream's back costs a new copy of the whole file. The mark of such a file is the
folder beside it in which Litestream keeps its state, from its first start until `kb replicate
--stop`. Every process sees it with one look, whether Litestream runs just now or not, and it does
not go along with a copy of the file.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import apsw

from kb.disk.holders import Holder, companion, holders, readers_of_log
from kb.errors import BusyError
from kb.results.findings import HINT, Finding
from kb.store.opening import wait_for_others
from kb.store.schema import PAGE_SIZE

if TYPE_CHECKING:
    from kb.store.database import Database

MERGE_MILLISECONDS = 2000  # how long the end of a write waits for readers to let go of the log
AGAIN_MILLISECONDS = 50  # the same once a reader has kept it for that long
MERGED_PAGES = 1000  # in the log, after which a commit merges what it can (SQLite's own number)
MOST_LOG = 512_000_000  # bytes of a log that cannot be merged, beyond which no write begins
# A replicated log comes near that if Litestream falls behind: writes then wait, longer and longer.
PAUSED_SHARE = 1 / 8  # of `MOST_LOG`, from which on they wait
PAUSE_SECONDS = 0.02  # at all of it
# Litestream's socket, relative to the folder it works in: a socket's name has to be short.
CONTROL = "control.sock"
COPY = "use `kb copy`, or copy the two files together"


class WriteAheadLog:
    """The log of one file, in which no write begins beyond `most` bytes that cannot be merged.

    Whoever calls it holds the file's one writer.
    """

    def __init__(self, path: Path, most: int = MOST_LOG) -> None:
        self.path = path
        self.waits = False  # the last merge left something in the log: the file alone lacks it
        self.problem = ""  # of the disk, why it did; "" where others read
        self._most = most
        self._logged = 0  # bytes in it, of a replicated file, when we last wrote
        self._litestream = litestream_folder(path)
        self._is_merged = True

    @property
    def is_replicated(self) -> bool:
        """Whether Litestream copies the file elsewhere, and merges its log alone."""
        return os.path.isdir(self._litestream)  # no error where a folder above is closed to us

    def set_merging(self, connection: apsw.Connection) -> None:
        """Let SQLite merge a log that grows within one write, unless Litestream does."""
        if self.is_replicated:
            connection.set_wal_hook(self._note_pages)  # in the place of SQLite's own
        else:
            connection.wal_autocheckpoint(MERGED_PAGES)

    def _note_pages(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._logged = pages * PAGE_SIZE
        return apsw.SQLITE_OK

    def note_write(self) -> None:
        """Note that something may be in the log."""
        self._is_merged = False

    def merge(
        self, connection: apsw.Connection, *, wait: bool = True, replicated: bool = False
    ) -> None:
        """Bring the log into the file, as far as other processes let it, if need be after a `wait`.

        `replicated`: even if that is Litestream's to do.
        """
        if self._is_merged:
            return
        if self.is_replicated and not replicated:
            self._is_merged, self.waits = True, False
            return
        if connection.in_transaction:
            return  # that write merges it
        # A reader that stays inside its transaction for longer leaves pages in the log; they are
        # merged at its end if it is ours, else by the next write or the close.
        self.problem = ""
        patience = AGAIN_MILLISECONDS if self.waits else MERGE_MILLISECONDS
        wait_for_others(connection, patience if wait else 0)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._is_merged, self.waits = True, False
        except (apsw.BusyError, apsw.LockedError):
            # A reader of the newest state keeps the log from being emptied, not from being merged.
            self.waits = True
            with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                pages, merged = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self.waits = merged < pages
        except (apsw.FullError, apsw.IOError) as error:
            # What was written is in the log, and read from there.
            self.waits = True
            self.problem = "the disk is full" if isinstance(error, apsw.FullError) else str(error)
        finally:
            wait_for_others(connection)

    def require_short(self, connection: apsw.Connection) -> None:
        """Make way for Litestream in time; BusyError when others have read for so long that nobody
        could merge the log."""
        share = self._logged / self._most
        # Litestream runs just now, or was killed without being started again.
        if share > PAUSED_SHARE and os.path.exists(self._litestream / CONTROL):
            time.sleep(PAUSE_SECONDS * min(share, 1.0) ** 2)
        if log_size(self.path) <= self._most:
            return
        self.note_write()
        # Litestream has been away for long, or is held itself.
        self.merge(connection, replicated=True)
        if (size := log_size(self.path)) > self._most:
            raise BusyError(
                f"{companion(self.path, '-wal')} has grown to {size / 1e6:.0f} MB, since another "
                f"process has been reading {self.path} all the time: end it (`kb doctor` names "
                "it), then try again",
                path=str(self.path),
            )


def log_size(path: Path) -> int:
    """The bytes of a file's log; 0 without one, or if it cannot be seen."""
    try:
        return companion(path, "-wal").stat().st_size
    except OSError:
        return 0


def litestream_folder(file: Path) -> Path:
    real = Path(os.path.realpath(file))
    return real.with_name(f".{real.name}-litestream")


def is_replicated(file: Path) -> bool:
    """Whether a file is copied elsewhere, or will be again when Litestream is back."""
    return os.path.isdir(litestream_folder(file))


class WaitingLog(NamedTuple):
    """A write-ahead log that cannot be merged for now.

    Nothing is lost: every kb and every SQLite that opens the file reads the log with it.
    """

    path: Path
    size: int  # bytes
    held_by: list[Holder]
    problem: str = ""  # of the disk

    @property
    def remedy(self) -> str:
        first = "make room there" if self.problem else "end that process or its transaction"
        return f"{first}; to copy all meanwhile, {COPY}"

    def sentence(self, *, with_commands: bool = False) -> str:
        """What a copy lacks and why; only the user sees whole commands."""
        who = ", ".join(
            f"process {holder.process} ({holder.command if with_commands else holder.program})"
            for holder in self.held_by
        )
        why = f"which {who or 'another process'} is reading"
        why = f"since {self.problem}" if self.problem else why
        return (
            f"up to {self.size / 1e6:.1f} MB of writes are in {self.path.name}-wal and not yet in "
            f"{self.path.name}, {why}: a plain copy of {self.path.name} alone lacks them"
        )


def log_finding(database: Database) -> Finding | None:
    """That writes wait in the log because others keep them from being merged."""
    if (waiting := waiting_log(database)) is None:
        return None
    return Finding("log", HINT, waiting.sentence(with_commands=True), waiting.remedy)


def waiting_log(database: Database) -> WaitingLog | None:
    """Try to merge the log; what waits if others prevent it, else None."""
    if database.in_memory or not log_size(database.path):
        return None
    if not database.read_only and database.merge_log():
        return None
    return held_log(database)


def held_log(database: Database) -> WaitingLog:
    """The log that could not be merged just now."""
    path, problem = database.path, database.log.problem
    held_by = [] if problem else readers_of_log(path) or holders(path)
    return WaitingLog(path, log_size(path), held_by, problem)
