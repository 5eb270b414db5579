"""One knowledge base file: one writer, a pool of readers, and files that are read beside it.

`opening` sets SQLite up, and `write_ahead_log` looks after the log.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw

from kb.disk.holders import holders
from kb.disk.open_databases import Claim
from kb.errors import BusyError, FileError
from kb.settings import FILE_NAME
from kb.store.connection import Connection, translated
from kb.store.copies import vacuum_into
from kb.store.mark import Mark
from kb.store.opening import connect, find_or_make, folders, leave_log, require_whole, use_log
from kb.store.schema import prepare
from kb.store.write_ahead_log import MOST_LOG, WriteAheadLog

CLOSE_SECONDS = 5
DAMAGE = apsw.CorruptError, apsw.NotADBError


class _Depth(threading.local):
    """How many reads and batches the current thread is inside of."""

    reads = batches = 0


class Database:
    """One knowledge base file.

    Args:
        path: the file, or ":memory:" for one that goes with the process.
        create: make the file (and its folder) when it is missing.
        most_log: bytes beyond which no write begins while the log cannot be merged.
        refusal: why the file must not be written; "" where it may be.
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
        self._old: set[Connection] = set()  # closed as soon as nobody reads from them
        self.in_memory = str(path) == ":memory:"
        self._folders = ("", "") if self.in_memory else folders(self.path)
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._reading: set[Connection] = set()
        self._reading_changed = threading.Condition()
        self._of_thread = _Depth()
        self._writer: Connection | None = None
        self._write_lock = threading.RLock()
        self.log = WriteAheadLog(self.path, most_log)
        self._closed = self._is_shut = False  # no more to be used; all but late reads closed
        self.read_only = bool(refusal)
        self._claim: Claim | None = None
        self.mark = Mark(None)
        if self.in_memory:
            self._writer = self._first_connection()
            return
        # From here on nothing of this process opens the file but SQLite.
        self._claim = Claim(self.path)
        try:
            self.mark = Mark(None if is_renewed else self.path)
            self.read_only |= find_or_make(self.path, self.mark, create=create)
            self._claim.take_up()  # the file may have been made just now
            self._idle.put(self._first_connection())
        except BaseException:
            self._claim.release()
            raise

    def _first_connection(self) -> Connection:
        with translated(self.path):
            connection = self._connect()
            try:
                if not self.in_memory:
                    require_whole(connection.apsw, self.path)
                prepare(connection, self.path, read_only=self.read_only, is_own=self.mark.is_own)
            except BaseException:
                connection.apsw.close()
                raise
        return connection

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def read(self, *, is_long: bool = False) -> Iterator[Connection]:
        """A connection that sees one state and cannot write; `is_long` to read the whole file."""
        if self.in_memory:
            with self._write_lock, translated(self.path):
                yield self._open_writer()
            return
        with translated(self.path):
            self._require_same_file()
            with self._reading_changed:
                if self._closed:
                    raise FileError(f"{self.path} is closed")
                try:
                    connection = self._idle.get_nowait()
                except queue.Empty:
                    connection = self._connect()
                self._reading.add(connection)
                self._of_thread.reads += 1
            connection.deadline.set_long(is_long)
            try:
                connection.apsw.pragma("query_only", True)
                connection.begin()
                yield connection
            except DAMAGE:
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
            RuntimeError: called inside a `read` of the same thread, whose state may be gone; the
                switch to WAL would wait for that very read.
        """
        self.require_no_read("write")
        if self.read_only:
            raise FileError(
                self._refusal
                or f"{self.path} cannot be written: copy it to a writable folder first",
                path=str(self.path),
            )
        with self._write_lock, translated(self.path):
            self._require_same_file()
            connection = self._open_writer()
            if connection.apsw.in_transaction:
                yield connection
                return
            if not self.in_memory:
                self.log.require_short(connection.apsw)
            connection.begin("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.apsw.execute("COMMIT")
            except BaseException as error:
                if connection.apsw.in_transaction:
                    connection.forget()
                    connection.apsw.execute("ROLLBACK")
                if isinstance(error, DAMAGE):
                    self._open_anew()
                raise
            self.log.note_write()
            if not self._of_thread.batches:
                self._merge_log()

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Many transactions of this thread with one merge of the log at the end.

        Another thread's write merges both: its caller may be told that all is in the file.
        """
        self._of_thread.batches += 1
        try:
            yield
        finally:
            self._of_thread.batches -= 1
            if not self._of_thread.batches:
                with self._write_lock, translated(self.path):
                    self._merge_log()
                    if self._writer is not None:
                        self._writer.forget()

    @property
    def is_replicated(self) -> bool:
        """Whether Litestream copies the file elsewhere, and merges its log alone."""
        return not self.in_memory and self.log.is_replicated

    def merge_log(self) -> bool:
        """Merge the log into the file now. False: it cannot be, as long as others read it."""
        self.require_no_read("merge the log")
        with self._write_lock, translated(self.path):
            self._open_writer()
            self.log.note_write()
            self._merge_log()
            return not self.log.waits

    def require_no_read(self, action: str) -> None:
        """Raise RuntimeError inside a `read` of the same thread."""
        if self._of_thread.reads:
            raise RuntimeError(f"end the read before you {action}")

    def copy_to(self, destination: Path, shown: Path | None = None) -> None:
        """Write one clean, compact copy. Raises FileError if it exists, or cannot be written."""
        with self.read(is_long=True) as connection, connection.deadline:
            vacuum_into(connection.apsw, self.path, destination, shown or destination)

    def compact(self) -> bool:
        """Write the file anew without its free room, where deleted text would remain.

        Returns:
            whether the file alone holds the new state: not while another process reads, or
                Litestream has not yet merged the log.

        Raises:
            BusyError: another process writes.
            FileError: there is no room for the copy that this takes.
        """
        self.require_no_read("compact")
        with self._write_lock, translated(self.path):
            self._open_writer().compact()
            self.log.note_write()
            self._merge_log()
            return not (self.log.waits or self.is_replicated)

    def close(self) -> None:
        """Close every connection, of late reads too; the last leaves the `.db` alone behind."""
        with self._reading_changed:
            if self._closed:
                return
            self._closed = True
            for connection in self._reading:
                connection.apsw.interrupt()
            self._reading_changed.wait_for(lambda: not self._reading, CLOSE_SECONDS)
            self._old |= self._reading
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
            if connections and merges and not (self.in_memory or self.read_only):
                leave_log(connections[0].apsw)
            for connection in connections[:1]:
                connection.apsw.close()
        with self._reading_changed:
            self._is_shut = True
            self._release_when_unused()

    def _release_when_unused(self) -> None:
        """Release the claim once the file is closed and the last late read has ended."""
        if self._claim is not None and self._is_shut and not self._reading:
            self._claim.release()

    def _end_reading(self, connection: Connection) -> None:
        if connection.apsw.in_transaction:
            connection.apsw.execute("ROLLBACK")
        with self._reading_changed:
            self._reading.discard(connection)
            self._of_thread.reads -= 1
            if connection in self._old:
                self._old.discard(connection)
                _close_as_it_is(connection)
                self._release_when_unused()
            else:
                self._idle.put(connection)
            self._reading_changed.notify_all()
        # A write that ended meanwhile could not merge the log under us.
        if self.log.waits and self._write_lock.acquire(blocking=False):
            try:
                if not (self._closed or self._of_thread.batches):
                    self._merge_log(wait=False)
            finally:
                self._write_lock.release()

    def _open_anew(self) -> None:
        """Close all connections once unused: they may remember a file that this one replaced."""
        with self._reading_changed:
            self._old |= self._reading
            while not self._idle.empty():
                _close_as_it_is(self._idle.get_nowait())
        if self._write_lock.acquire(blocking=False):
            try:
                if self._writer is not None and not self._writer.apsw.in_transaction:
                    _close_as_it_is(self._writer)
                    self._writer = None
            finally:
                self._write_lock.release()

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._claim is None or self._claim.is_in_place()

    def _open_writer(self) -> Connection:
        if self._closed:
            raise FileError(f"{self.path} is closed")
        if self._writer is None:
            connection = self._connect()
            try:
                use_log(connection.apsw)
            except (apsw.BusyError, apsw.LockedError) as error:
                connection.apsw.close()
                who = ", ".join(f"process {holder.process}" for holder in holders(self.path))
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
            self.log.set_merging(self._writer.apsw)
        return self._writer

    def _merge_log(self, *, wait: bool = True) -> None:
        if self._writer is not None and not self.in_memory:
            self.log.merge(self._writer.apsw, wait=wait)

    def _require_same_file(self) -> None:
        if self._claim is None:
            return
        if not self._is_renewed:
            self._claim.require_in_place()
            return
        with self._reading_changed:
            if self._claim.take_up():
                self._old |= self._reading
                while not self._idle.empty():
                    self._idle.get_nowait().apsw.close()

    def _connect(self) -> Connection:
        how = (self.in_memory, self.read_only, is_own := self.mark.is_own)
        return Connection(connect(self.path, *how), self.path, *self._folders, is_own=is_own)


def _close_as_it_is(connection: Connection) -> None:
    """Close a connection without merging the log, which may be another file's."""
    connection.apsw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    connection.apsw.close()


class AttachedFiles:
    """Files to be read. One that is missing or damaged is tried again the next time.

    Args:
        lost: why other files cannot be opened; these are not tried again.
        late: says what the file that is read itself may lack.
    """

    def __init__(
        self,
        paths: Sequence[Path] = (),
        lost: Sequence[str] = (),
        late: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.paths = paths
        self._lost = lost
        self._late = late
        self._open: dict[Path, Database] = {}
        self._lock = threading.Lock()
        self._missing: list[str] = []

    @property
    def unavailable(self) -> list[str]:
        """Why each missing file could not be opened last time, one sentence each."""
        return [*self._lost, *self._missing, *self._late()]

    def databases(self) -> list[Database]:
        """The files that can be read now; `unavailable` says why others cannot."""
        with self._lock:
            missing, databases = [], []
            for path in self.paths:
                try:
                    databases.append(self._database(path))
                except FileError as error:
                    missing.append(f"Left out: {error.message.rstrip('.')}.")
            self._missing = missing
            return databases

    def close(self) -> None:
        for database in self._open.values():
            database.close()

    def _database(self, path: Path) -> Database:
        if path in self._open and not self._open[path].is_in_place():
            self._open.pop(path).close()
        if path not in self._open:
            self._open[path] = Database(path, create=False)
        return self._open[path]


def labels(paths: Sequence[Path]) -> list[str]:
    """A distinct label for each file: its name, or that of its project's folder."""
    chosen: list[str] = []
    for path in map(Path.absolute, paths):
        is_project = path.parts[-2:] == FILE_NAME.parts
        name = path.parent.parent.name if is_project else path.stem
        names = [name, *(f"{name}-{number}" for number in range(2, len(paths) + 1))]
        chosen.append(next(name for name in names if name not in chosen))
    return chosen
