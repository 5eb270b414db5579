"""One knowledge base file: one writer and a pool of readers.

What SQLite is told lies in `opening`, what becomes of the write-ahead log in `write_ahead_log`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw

from kb.disk.holders import holders
from kb.disk.read import reason
from kb.errors import BusyError, FileError
from kb.store.connection import Connection
from kb.store.file_on_disk import find_or_make, folders, require_whole
from kb.store.opening import connect, sqlite_name, use_log
from kb.store.same_file import SameFile
from kb.store.schema import prepare
from kb.store.sqlite_errors import translated
from kb.store.write_ahead_log import MOST_LOG, WriteAheadLog

CLOSE_SECONDS = 5


class Database:
    """One knowledge base file.

    Args:
        path: the file, or ":memory:" for one that goes with the process.
        create: make the file (and its folder) when it is missing.
        most_log: bytes beyond which no write begins while the log cannot be merged.
        refusal: why nothing is written, for a file that must not be; "" where it may.
        is_renewed: newer copies take the file's place, and are read from then on.

    Raises:
        FileError: missing without `create`, or unreadable.
        DamagedFileError: not SQLite, another program's file, or damaged.
        NewerFileError: written by a later version of kb.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        most_log: int = MOST_LOG,
        refusal: str = "",
        is_renewed: bool = False,
    ) -> None:
        self.path = Path(path)
        self._refusal = refusal
        self._is_renewed = is_renewed
        self._old: set[Connection] = set()  # that are closed when they are read from no more
        self.in_memory = str(path) == ":memory:"
        self._folders = ("", "") if self.in_memory else folders(self.path)
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._reading: set[Connection] = set()
        self._reading_changed = threading.Condition()
        self._of_thread = threading.local()  # how many reads and batches it is inside of
        self._writer: Connection | None = None
        self._write_lock = threading.RLock()
        self._log = WriteAheadLog(self.path, most_log)
        self._closed = False
        is_fixed = not self.in_memory and find_or_make(self.path, create=create)
        self.read_only = is_fixed or bool(refusal)
        with self.translated():
            connection = self._connect()
            try:
                if not self.in_memory:
                    require_whole(self.path)
                prepare(connection.apsw, self.path, read_only=self.read_only)
            except BaseException:
                connection.apsw.close()
                raise
        self._same_file = None if self.in_memory else SameFile(self.path)
        if self.in_memory:
            self._writer = connection
        else:
            self._idle.put(connection)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one unchanging state and cannot write."""
        if self.in_memory:
            with self._write_lock, self.translated():
                yield self._open_writer()
            return
        with self.translated():
            self._require_same_file()
            connection = self._begin_reading()
            try:
                connection.apsw.pragma("query_only", True)
                connection.apsw.execute("BEGIN")
                yield connection
            except (apsw.CorruptError, apsw.NotADBError):
                self._open_anew()
                raise
            finally:
                self._end_reading(connection)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock: all of it is stored, or nothing.

        Inside another `write` of the same thread it joins that one. Afterwards the log is merged
        into the file, unless the thread is inside of a `batch`.

        Raises:
            BusyError: another process wrote for longer than we wait, or reads for so long that
                the log has grown too large.
            ReplacedFileError: the file is no longer where it was.
            RuntimeError: called inside a `read` of the same thread. That would decide on a state
                that may be gone, and the switch to WAL would wait for that very read.
        """
        self.require_no_read("write")
        if self.read_only:
            raise FileError(
                self._refusal
                or f"{self.path} cannot be written: copy it to a writable folder first",
                path=str(self.path),
            )
        with self._write_lock, self.translated():
            self._require_same_file()
            connection = self._open_writer()
            if connection.apsw.in_transaction:
                yield connection
                return
            if not self.in_memory:
                self._log.require_short(connection.apsw)
            connection.apsw.execute("BEGIN IMMEDIATE")
            try:
                with self._rolled_back(connection):
                    yield connection
                    connection.apsw.execute("COMMIT")
            except (apsw.CorruptError, apsw.NotADBError):
                self._open_anew()
                raise
            self._log.note_write()
            if not self._own("batches"):
                self._merge_log()

    @contextlib.contextmanager
    def _rolled_back(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        finally:
            if connection.apsw.in_transaction:
                connection.forget_known_runs()
                connection.apsw.execute("ROLLBACK")

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Many transactions of this thread with one merge of the log at the end.

        A write of another thread merges meanwhile what both have stored: its caller may be told
        that all is in the file.
        """
        self._of_thread.batches = self._own("batches") + 1
        try:
            yield
        finally:
            self._of_thread.batches -= 1
            if not self._own("batches"):
                with self._write_lock, self.translated():
                    self._merge_log()
                    if self._writer is not None:
                        self._writer.forget_known_runs()

    @property
    def is_replicated(self) -> bool:
        """Whether Litestream copies the file elsewhere, and merges its log alone."""
        return not self.in_memory and self._log.is_replicated

    @property
    def log_waits(self) -> bool:
        """Whether the last merge left something in the log: the file alone lacks it."""
        return self._log.waits

    def merge_log(self) -> bool:
        """Merge the log into the file now. False: others read and keep it from being merged."""
        self.require_no_read("merge the log")
        with self._write_lock, self.translated():
            self._open_writer()
            self._log.note_write()
            self._merge_log()
            return not self._log.waits

    def require_no_read(self, action: str) -> None:
        """Refuse what must not happen inside a `read` of the same thread.

        Raises:
            RuntimeError: the thread is inside of one.
        """
        if self._own("reads"):
            raise RuntimeError(f"end the read before you {action}")

    def copy_to(self, destination: Path, shown: Path | None = None) -> None:
        """Write one clean, compact copy. The destination must not exist.

        Args:
            shown: the place that is named where it fails.

        Raises:
            FileError: it exists, or cannot be written.
        """
        if destination.exists():
            raise FileError(f"{destination} exists already: choose another name or remove it")
        if not destination.parent.is_dir():
            raise FileError(f"the folder {destination.parent} does not exist: make it first")
        unfinished = destination.with_name(f"{destination.name}.unfinished")
        try:
            unfinished.unlink(missing_ok=True)
            with self.read() as connection:
                if connection.apsw.in_transaction:
                    connection.apsw.execute("ROLLBACK")  # VACUUM wants none
                connection.apsw.pragma("query_only", False)  # which forbids VACUUM INTO
                connection.apsw.execute("VACUUM INTO ?", (sqlite_name(unfinished),))
            unfinished.rename(destination)
        except (OSError, FileError, apsw.Error) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise FileError(
                f"cannot write the copy {shown or destination}: {why}",
                path=str(shown or destination),
            ) from error
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def compact(self) -> bool:
        """Write the file anew without its free room, where deleted text would lie on.

        Returns:
            whether the file alone holds the new state. It does not while another process reads, or
                Litestream has not yet merged the log.

        Raises:
            BusyError: another process writes.
            FileError: there is no room for the copy that this takes meanwhile.
        """
        self.require_no_read("compact")
        with self._write_lock, self.translated():
            connection = self._open_writer()
            connection.apsw.execute("VACUUM")
            self._log.note_write()
            self._merge_log()
            return not (self._log.waits or self.is_replicated)

    def close(self) -> None:
        """Close every connection; the last one to go leaves the `.db` alone behind.

        Reads that are under way in other threads are interrupted.
        """
        with self._reading_changed:
            if self._closed:
                return
            self._closed = True
            for connection in self._reading:
                connection.apsw.interrupt()
            self._reading_changed.wait_for(lambda: not self._reading, CLOSE_SECONDS)
        with self._write_lock:
            connections = [self._writer] if self._writer else []
            while not self._idle.empty():
                connections.append(self._idle.get_nowait())
            # By its name the log would be that of the file in its place.
            merges = self.is_in_place() and not self.is_replicated
            for connection in connections:
                connection.apsw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, not merges)
            for connection in connections[1:]:
                connection.apsw.close()
            if not connections:
                return
            if merges and not (self.in_memory or self.read_only):
                # Refused while another process has the file open: its own close does it.
                with contextlib.suppress(apsw.Error):
                    connections[0].apsw.set_busy_timeout(0)
                    connections[0].apsw.pragma("query_only", False)
                    if connections[0].apsw.pragma("journal_mode") == "wal":
                        connections[0].apsw.pragma("journal_mode", "delete")
            connections[0].apsw.close()

    def _begin_reading(self) -> Connection:
        with self._reading_changed:
            if self._closed:
                raise FileError(f"{self.path} is closed")
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                connection = self._connect()
            self._reading.add(connection)
            self._of_thread.reads = self._own("reads") + 1
            return connection

    def _end_reading(self, connection: Connection) -> None:
        if connection.apsw.in_transaction:
            connection.apsw.execute("ROLLBACK")
        with self._reading_changed:
            self._reading.discard(connection)
            self._of_thread.reads -= 1
            if connection in self._old:
                self._old.discard(connection)
                self._close_as_it_is(connection)
            else:
                self._idle.put(connection)
            self._reading_changed.notify_all()
        # A write that ended meanwhile could not merge the log under us.
        if self._log.waits and self._write_lock.acquire(blocking=False):
            try:
                if not (self._closed or self._own("batches")):
                    self._merge_log(wait=False)
            finally:
                self._write_lock.release()

    def _open_anew(self) -> None:
        """Close all connections, as soon as nobody uses them.

        What they remember of the file may be of another one that this was copied over.
        """
        with self._reading_changed:
            self._old |= self._reading
            while not self._idle.empty():
                self._close_as_it_is(self._idle.get_nowait())
        if self._write_lock.acquire(blocking=False):
            try:
                if self._writer is not None and not self._writer.apsw.in_transaction:
                    self._close_as_it_is(self._writer)
                    self._writer = None
            finally:
                self._write_lock.release()

    def _close_as_it_is(self, connection: Connection) -> None:
        """Close a connection without merging the log, which may be another file's."""
        connection.apsw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        connection.apsw.close()

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._same_file is None or self._same_file.is_in_place()

    def _own(self, what: str) -> int:
        """How many `reads` or `batches` the current thread is inside of."""
        return getattr(self._of_thread, what, 0)

    def _open_writer(self) -> Connection:
        if self._closed:
            raise FileError(f"{self.path} is closed")
        if self._writer is None:
            connection = self._connect()
            try:
                use_log(connection.apsw)
            except (apsw.BusyError, apsw.LockedError) as error:
                connection.apsw.close()
                who = ", ".join(f"process {one.process}" for one in holders(self.path))
                raise BusyError(
                    f"{self.path} cannot be written while {who or 'another process'} reads it: try "
                    "again when that has ended",
                    path=str(self.path),
                ) from error
            except BaseException:
                connection.apsw.close()
                raise
            self._writer = connection
        if not self.in_memory:
            self._log.set_merging(self._writer.apsw)
        return self._writer

    def _merge_log(self, *, wait: bool = True) -> None:
        if self._writer is not None and not self.in_memory:
            self._log.merge(self._writer.apsw, wait=wait)

    def _require_same_file(self) -> None:
        if self._same_file is None:
            return
        if not self._is_renewed:
            self._same_file.require()
            return
        with self._reading_changed:
            if self._same_file.take_up():
                self._old |= self._reading
                while not self._idle.empty():
                    self._idle.get_nowait().apsw.close()

    def _connect(self) -> Connection:
        connection = connect(self.path, in_memory=self.in_memory, read_only=self.read_only)
        return Connection(connection, *self._folders)

    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Inside of it SQLite's errors become ours, with the file's name and what to do."""
        return translated(self.path)
