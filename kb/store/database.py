"""The file: open, migrate, one writer, a pool of readers. apsw is used here and nowhere else.

Journal handling. A file is in WAL mode while somebody writes, so that readers never wait. When
a `write()` or a `batch()` ends, the log is merged into the file and emptied, so that a copy of the
`.db` alone is complete; when the last connection closes, the file goes back to the DELETE
journal and no `-wal` or `-shm` stays behind. While another process stays inside a read, what is
newer than its state cannot be merged: `log_waits` says so.

A file that Litestream replicates stays in WAL mode, and nobody here merges its log: a log that was
merged behind its back costs a new copy of the whole file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apsw

from kb.disk.holders import holders
from kb.errors import (
    BusyError,
    DamagedFileError,
    FileError,
    NewerFileError,
    ReplacedFileError,
)
from kb.store.replicated import litestream_folder
from kb.store.statements import statement
from kb.text.file_names import storable

APPLICATION_ID = 0x6B62646F
SCHEMA_VERSION = 4
BUSY_MILLISECONDS = 20_000
CLOSE_SECONDS = 5
LOOK_SECONDS = 0.004  # between two looks whether another process has let go of a lock
MERGE_MILLISECONDS = 2000  # how long the end of a write waits for readers to let go of the log
AGAIN_MILLISECONDS = 50  # the same once a reader has kept it for that long
MERGED_PAGES = 1000  # in the log, after which a commit merges what it can (SQLite's own number)
MOST_LOG = 512_000_000  # bytes of a log that cannot be merged, beyond which no write begins
PROJECT_FOLDER = ".kb"
# The first file in a project's folder: what git leaves out; config.json there belongs to git.
IGNORED = """\
# The knowledge base is made anew by `kb sync`; other files here are kept.
*.db
*.db-*
*.db.*
"""
SQLITE_HEADER = b"SQLite format 3\0"
PAGE_SIZE = 8192  # 10-20 % faster than 4096 on vector reads (measured)
MIGRATIONS: Traversable = resources.files("kb") / "migrations"  # NNNN.sql: to version NNNN

# As in schema.sql, beneath porter: the words of a text before they are stemmed.
TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co M*"]

Row = dict[str, Any]


class Connection:
    """One SQLite connection that runs statements by their names."""

    def __init__(self, connection: apsw.Connection, folder: str = "", project: str = "") -> None:
        self.apsw = connection
        # What sources of this file are relative to, and the project whose file it is: see
        # `kb.sources.address`. Both absolute, "" for none.
        self.folder = folder
        self.project = project
        self._tokenizers: dict[bool, apsw.FTS5Tokenizer] = {}
        self._kept: dict[str, tuple[tuple[int, int], Any]] = {}

    def kept(self, name: str) -> Any:
        """What was kept under a name, unless the file has changed since; else None.

        Call it inside the read or write that uses it.
        """
        stamp, value = self._kept.get(name, (None, None))
        return value if stamp == self._stamp() else None

    def keep(self, name: str, value: Any) -> None:
        """Keep what was read in this transaction until the file changes."""
        self._kept[name] = self._stamp(), value

    def _stamp(self) -> tuple[int, int]:
        """Changes with every change of the file: by others, and by this connection."""
        version: Any = self.apsw.pragma("data_version")
        return int(version), self.apsw.total_changes()

    def tokenize(self, text: str, *, stem: bool = False) -> list[tuple[int, int, str]]:
        """The terms of a text as the keyword index cuts and folds them, in order.

        Args:
            stem: the index's own terms; else the folded words that they are stems of.

        Returns:
            (start, end, term) each, in characters.
        """
        if stem not in self._tokenizers:
            name, *arguments = ["porter", *TOKENIZER] if stem else TOKENIZER
            self._tokenizers[stem] = self.apsw.fts5_tokenizer(name, arguments)
        utf8 = text.encode()
        found: Any = self._tokenizers[stem](
            utf8, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False
        )
        if len(utf8) == len(text):
            return list(found)
        terms: list[tuple[int, int, str]] = []
        byte = character = 0
        for first, last, term in found:
            start = character + len(utf8[byte:first].decode())
            byte, character = last, start + len(utf8[first:last].decode())
            terms.append((start, character, term))
        return terms

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """All result rows, each with the SELECT's aliases as keys."""
        cursor = self.apsw.execute(statement(name), parameters)
        try:
            names = [column for column, _ in cursor.get_description()]
        except apsw.ExecutionCompleteError:  # no row: apsw keeps no description
            return []
        try:
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except BaseException:
            # The error's traceback keeps the cursor; one that is open keeps the file from writers.
            cursor.close(True)
            raise

    def row(self, name: str, /, **parameters: Any) -> Row | None:
        """The first result row, or None."""
        found = self.rows(name, **parameters)
        return found[0] if found else None

    def tuples(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """All result rows as tuples, for bulk reads."""
        return self.apsw.execute(statement(name), parameters).fetchall()

    def iterate(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Result rows as tuples one by one, for a caller who may stop before the last."""
        yield from self.apsw.execute(statement(name), parameters)

    def value(self, name: str, /, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        for row in self.apsw.execute(statement(name), parameters):
            return row[0]
        return None

    def run(self, name: str, /, **parameters: Any) -> int:
        """Execute; the number of rows it changed."""
        self.apsw.execute(statement(name), parameters).fetchall()
        return self.apsw.changes()

    def run_many(self, name: str, /, parameters: Iterable[dict[str, Any]]) -> None:
        """Execute once for each set of parameters."""
        self.apsw.executemany(statement(name), parameters)

    def last_id(self) -> int:
        return self.apsw.last_insert_rowid()

    def versions(self) -> dict[str, str]:
        """Of SQLite and the vector extension."""
        vector = self.value("vector_extension_version")
        return {"sqlite": apsw.sqlite_lib_version(), "vector": vector}

    def integrity(self, limit: int) -> list[str]:
        """What SQLite finds wrong with pages, rows and indexes; reads the whole file."""
        found: Any = self.apsw.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
        return [message for (message,) in found if message != "ok"]

    def broken_references(self) -> list[tuple[str, str]]:
        """Table and missing parent of every row that refers to a row that is not there."""
        found: Any = self.apsw.execute("PRAGMA foreign_key_check").fetchall()
        return [(child, parent) for child, _, parent, _ in found]


class Database:
    """One knowledge base file.

    Args:
        path: the file, or ":memory:" for one that goes with the process.
        create: make the file (and its folder) when it is missing.
        most_log: bytes beyond which no write begins while the log cannot be merged.
        refusal: why nothing is written, for a file that must not be; "" where it may.

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
    ) -> None:
        self.path = Path(path)
        self._refusal = refusal
        self.in_memory = str(path) == ":memory:"
        self._folders = ("", "") if self.in_memory else _folders(self.path)
        self._litestream = litestream_folder(self.path)
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._reading: set[Connection] = set()
        self._reading_changed = threading.Condition()
        self._of_thread = threading.local()  # how many reads and batches it is inside of
        self._writer: Connection | None = None
        self._write_lock = threading.RLock()
        self._log_is_merged = True
        self._log_waits = False
        self._most_log = most_log
        self._closed = False
        self.read_only = (not self.in_memory and self._is_read_only(create)) or bool(refusal)
        with self.translated():
            connection = self._connect()
            try:
                self._require_whole(connection.apsw)
                self._prepare(connection.apsw)
            except BaseException:
                connection.apsw.close()
                raise
        # What is written to a file that nobody finds any more would be lost without a word.
        self._opened: tuple[int, int] | None = None
        self._opened = self._identity()
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
            self._require_short_log()
            connection.apsw.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.apsw.execute("COMMIT")
            finally:
                if connection.apsw.in_transaction:
                    connection.apsw.execute("ROLLBACK")
            self._log_is_merged = False
            if not self._own("batches"):
                self._merge_log()

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

    @property
    def is_replicated(self) -> bool:
        """Whether Litestream copies the file elsewhere, and merges its log alone."""
        return not self.in_memory and self._litestream.is_dir()

    @property
    def log_waits(self) -> bool:
        """Whether the last merge left something in the log: the file alone lacks it."""
        return self._log_waits

    def merge_log(self) -> bool:
        """Merge the log into the file now. False: others read and keep it from being merged."""
        self.require_no_read("merge the log")
        with self._write_lock, self.translated():
            self._open_writer()
            self._log_is_merged = False
            self._merge_log()
            return not self._log_waits

    def require_no_read(self, action: str) -> None:
        """Refuse what must not happen inside a `read` of the same thread.

        Raises:
            RuntimeError: the thread is inside of one.
        """
        if self._own("reads"):
            raise RuntimeError(f"end the read before you {action}")

    def copy_to(self, destination: Path) -> None:
        """Write one clean, compact copy. The destination must not exist.

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
                connection.apsw.execute("VACUUM INTO ?", (_sqlite_name(unfinished),))
            unfinished.rename(destination)
        except (OSError, FileError, apsw.Error) as error:
            raise FileError(
                f"cannot write the copy {destination}: {error}", path=str(destination)
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
            self._log_is_merged = False
            self._merge_log()
            return not (self._log_waits or self.is_replicated)

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
            merges = self._identity() == self._opened and not self.is_replicated
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
            self._idle.put(connection)
            self._reading_changed.notify_all()
        # A write that ended meanwhile could not merge the log under us.
        if self._log_waits and self._write_lock.acquire(blocking=False):
            try:
                if not (self._closed or self._own("batches")):
                    self._merge_log(wait=False)
            finally:
                self._write_lock.release()

    def _identity(self) -> tuple[int, int] | None:
        """What tells the file at our path from another one; None when there is none."""
        if self.in_memory:
            return None
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError:  # a folder above that may not be entered any more: nothing is known
            return self._opened
        return status.st_dev, status.st_ino

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._identity() == self._opened

    def _require_same_file(self) -> None:
        """Refuse to go on with a file that nobody finds any more.

        Raises:
            ReplacedFileError: it is no longer where it was.
        """
        if (now := self._identity()) == self._opened:
            return
        if now is None:
            raise ReplacedFileError(
                f"{self.path} was removed while it was open: put it or a copy of it back, or make "
                "it anew with `kb add FOLDER`; then start the server again",
                path=str(self.path),
            )
        raise ReplacedFileError(
            f"{self.path} was replaced by another file while it was open: start the server again "
            "to use that one",
            path=str(self.path),
        )

    def _own(self, what: str) -> int:
        """How many `reads` or `batches` the current thread is inside of."""
        return getattr(self._of_thread, what, 0)

    def _is_read_only(self, create: bool) -> bool:
        folder = self.path.parent
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder: name a file, such as {self.path}/kb.db")
        if self.path.exists():
            self._require_database()
            effective = os.access in os.supports_effective_ids
            return not all(
                os.access(place, os.W_OK, effective_ids=effective) for place in (self.path, folder)
            )
        if not create:
            raise FileError(
                f"there is no knowledge base at {self.path}: "
                "make one with `kb add FOLDER`, or name another file with --db",
                path=str(self.path),
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if folder.name == PROJECT_FOLDER:
                with (
                    contextlib.suppress(FileExistsError),
                    (folder / ".gitignore").open("x") as file,
                ):
                    file.write(IGNORED)
        except OSError as error:
            raise FileError(f"cannot write to the folder {folder}: {error.strerror}") from error
        self._make()
        return False

    def _make(self) -> None:
        """Put a whole new file in its place at once, unless another process is first.

        So nobody ever sees one without its tables, and one that is empty was cut off.
        """
        new = self.path.with_name(f"{self.path.name}.new-{os.getpid()}-{threading.get_ident()}")
        try:
            new.write_bytes(_empty_file())
            try:
                os.link(new, self.path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                if not self.path.exists():
                    new.replace(self.path)
        except OSError as error:
            raise FileError(
                f"cannot make {self.path}: {error.strerror}", path=str(self.path)
            ) from error
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)

    def _require_database(self) -> None:
        """Refuse what does not begin as a database; SQLite takes a file of one byte for empty."""
        try:
            with self.path.open("rb") as file:
                header = file.read(len(SQLITE_HEADER))
        except OSError as error:
            raise FileError(f"cannot read {self.path}: {error.strerror}") from error
        if self._has_journal():
            return  # after a crash in its first transaction the journal makes the file empty again
        if not header:
            raise DamagedFileError(
                f"{self.path} is empty, which no knowledge base ever is: restore a copy, or "
                "delete it to begin anew"
            )
        if header != SQLITE_HEADER:
            raise DamagedFileError(
                f"{self.path} is damaged or no SQLite file: name another file with --db, or "
                "restore a copy"
            )

    def _require_whole(self, connection: apsw.Connection) -> None:
        """Refuse a file that was cut off; SQLite would see it only where it comes to the end.

        While there is a log or a journal the file alone says nothing.
        """
        if self.in_memory or self._has_journal():
            return
        size = self.path.stat().st_size
        if not size:
            return  # new, or refused before
        pages, page_size = connection.pragma("page_count"), connection.pragma("page_size")
        # Another process may have written to it since its size was taken.
        if size < pages * page_size and not self._has_journal():
            size = self.path.stat().st_size
            if size < pages * page_size:
                raise DamagedFileError(
                    f"{self.path} is damaged: {pages * page_size - size} bytes are missing at its "
                    "end. Restore a copy, or delete it and sync again"
                )

    def _has_journal(self) -> bool:
        return any(
            log.exists() and log.stat().st_size
            for log in (Path(f"{self.path}-wal"), Path(f"{self.path}-journal"))
        )

    def _connect(self) -> Connection:
        if self.in_memory:
            connection = apsw.Connection(":memory:")
        elif self.read_only:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            uri = self.path.absolute().as_uri()
            connection = apsw.Connection(f"{uri}?{self._read_only_mode()}", flags)
        else:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(_sqlite_name(self.path), flags)
        _wait_for_others(connection, BUSY_MILLISECONDS)
        connection.pragma("foreign_keys", True)
        connection.pragma("mmap_size", 1 << 30)
        _load_vector_extension(connection)
        return Connection(connection, *self._folders)

    def _read_only_mode(self) -> str:
        """How to open a file that cannot be written.

        A copy whose header says WAL needs a -shm beside it, which cannot be made there, so it is
        read as immutable. That ignores other processes' writes, so it is done for no other file:
        where there is a log, somebody writes, and the log's index exists already.
        """
        log = Path(f"{self.path}-wal")
        with self.path.open("rb") as file:
            header = file.read(20)
        header_says_wal = header[18:20] == b"\2\2"
        if header_says_wal and not (log.exists() and log.stat().st_size):
            return "immutable=1" if not Path(f"{self.path}-shm").exists() else "mode=ro"
        return "mode=ro"

    def _prepare(self, connection: apsw.Connection) -> None:
        if _version(connection) == (0, 0) and not self.read_only:
            connection.pragma("page_size", PAGE_SIZE)
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have made the schema while we waited for the lock.
                if _version(connection) == (0, 0):
                    if connection.execute("SELECT count(*) FROM sqlite_schema").get:
                        raise DamagedFileError(
                            f"{self.path} is another program's database: name another file"
                        )
                    connection.execute(_resource("schema.sql"))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        application, version = _version(connection)
        if application != APPLICATION_ID:
            raise DamagedFileError(f"{self.path} is not a kb file: name another file with --db")
        if version > SCHEMA_VERSION:
            raise NewerFileError(
                f"{self.path} was written by a newer kb (file version {version}, this kb reads "
                f"up to {SCHEMA_VERSION}): upgrade kb"
            )
        if version < SCHEMA_VERSION:
            self._migrate(connection, version)

    def _migrate(self, connection: apsw.Connection, version: int) -> None:
        if self.read_only:
            raise FileError(
                f"{self.path} has the older version {version} and cannot be written: "
                "copy it to a writable folder and open it there once"
            )
        backup = self.path.with_name(f"{self.path.name}.version-{version}")
        connection.pragma("foreign_keys", False)  # so that a migration can rebuild a table
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated while we waited for the lock.
            current = _version(connection)[1]
            if current < SCHEMA_VERSION:
                self._back_up(backup)
            while (current := _version(connection)[1]) < SCHEMA_VERSION:
                script = MIGRATIONS / f"{current + 1:04}.sql"
                connection.execute(script.read_text(encoding="utf-8"))
                connection.pragma("user_version", current + 1)
            if broken := connection.pragma("foreign_key_check"):
                raise apsw.ConstraintError(f"broken reference: {broken}")
            connection.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            raise FileError(
                f"{self.path} could not be brought from version {version} to {SCHEMA_VERSION}: "
                f"{error}. It was left as it is; use the kb that wrote it, and report this"
            ) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        connection.pragma("foreign_keys", True)
        backup.unlink(missing_ok=True)

    def _back_up(self, destination: Path) -> None:
        """Copy the file as it is; the lock that a migration holds lets readers through."""
        destination.unlink(missing_ok=True)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        reader = apsw.Connection(_sqlite_name(self.path), flags)
        try:
            reader.execute("VACUUM INTO ?", (_sqlite_name(destination),))
        finally:
            reader.close()

    def _open_writer(self) -> Connection:
        if self._closed:
            raise FileError(f"{self.path} is closed")
        if self._writer is None:
            connection = self._connect()
            try:
                _use_log(connection.apsw)
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
        self._writer.apsw.wal_autocheckpoint(0 if self.is_replicated else MERGED_PAGES)
        return self._writer

    def _merge_log(self, *, wait: bool = True, replicated: bool = False) -> None:
        if self._log_is_merged or self._writer is None or self.in_memory:
            return
        if self.is_replicated and not replicated:
            self._log_is_merged, self._log_waits = True, False
            return
        connection = self._writer.apsw
        if connection.in_transaction:
            return  # that write merges it
        # A reader that stays inside its transaction for longer leaves pages in the log; they are
        # merged at its end if it is ours, else by the next write or the close.
        patience = AGAIN_MILLISECONDS if self._log_waits else MERGE_MILLISECONDS
        _wait_for_others(connection, patience if wait else 0)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._log_is_merged, self._log_waits = True, False
        except (apsw.BusyError, apsw.LockedError):
            # One who reads the newest state keeps the log from being emptied, not from being
            # merged.
            self._log_waits = True
            with contextlib.suppress(apsw.BusyError, apsw.LockedError):
                pages, merged = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._log_waits = merged < pages
        finally:
            _wait_for_others(connection, BUSY_MILLISECONDS)

    def _require_short_log(self) -> None:
        """Refuse to write on and on into a log that nobody can merge.

        Raises:
            BusyError: others have been inside a read for too long.
        """
        log = Path(f"{self.path}-wal")
        if self.in_memory or _size(log) <= self._most_log:
            return
        self._log_is_merged = False
        self._merge_log(replicated=True)  # Litestream has been away for long, or is held itself
        if (size := _size(log)) > self._most_log:
            raise BusyError(
                f"{log} has grown to {size / 1e6:.0f} MB, since another process has been reading "
                f"{self.path} all the time: end it (`kb doctor` names it), then try again",
                path=str(self.path),
            )

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, with the file's name and what to do."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
            raise BusyError(
                f"{self.path} is being written by another process: try again when it is done"
            ) from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise DamagedFileError(
                f"{self.path} is damaged or no SQLite file ({error}): restore a copy, or delete "
                "it and sync again"
            ) from error
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DamagedFileError(
                f"{self.path} is damaged: a text in it cannot be read ({error}). `kb doctor` looks "
                "at all of it; restore a copy, or delete the file and sync again"
            ) from error
        except apsw.SQLError as error:
            # Every statement is tested with the schema: a table, or the width of a vector, differs.
            raise DamagedFileError(
                f"{self.path} is damaged, or another program has changed it ({error}): `kb doctor` "
                "says what is wrong, `kb doctor --fix` makes anew what it can; else restore a copy"
            ) from error
        except (apsw.InterruptError, apsw.ConnectionClosedError) as error:
            raise FileError(f"{self.path} was closed while it was read") from error
        except apsw.FullError as error:
            raise FileError(f"the disk is full while writing {self.path}") from error
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.PermissionsError) as e:
            raise FileError(f"cannot use {self.path}: {e}", path=str(self.path)) from e


def utc_now() -> str:
    """The current time as stored in the file."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _size(log: Path) -> int:
    """Its bytes; 0 where there is none, or nobody may look."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _folders(path: Path) -> tuple[str, str]:
    """The folder to which sources in a file are relative, and the project whose file it is."""
    folder = path.absolute().parent.resolve()
    if folder.name == PROJECT_FOLDER:
        project = storable(folder.parent)
        return project, project
    return storable(folder), ""


def _sqlite_name(path: Path) -> str:
    """A file's name for SQLite, which takes UTF-8, or an address with any bytes in it."""
    path = path.absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.as_uri()
    return str(path)


@cache
def _empty_file() -> bytes:
    """A file with the tables and nothing in them."""
    connection = apsw.Connection(":memory:")
    try:
        connection.pragma("page_size", PAGE_SIZE)
        connection.execute(_resource("schema.sql"))
        return connection.serialize("main")
    finally:
        connection.close()


def _version(connection: apsw.Connection) -> tuple[int, int]:
    return connection.pragma("application_id"), connection.pragma("user_version")


def _resource(*names: str) -> str:
    """A packaged SQL file; in a checkout `schema.sql` lies beside the package."""
    folder = resources.files("kb")
    packaged = folder.joinpath(*names)
    if not packaged.is_file():
        packaged = Path(str(folder)).parent.joinpath(*names)
    return packaged.read_text(encoding="utf-8")


def _wait_for_others(connection: apsw.Connection, milliseconds: int) -> None:
    """For how long a lock of another process is waited for, looking again and again.

    SQLite's own way looks ten times a second after a while. Beside a process that writes one
    transaction after another it finds the lock free once in many seconds.
    """
    until = 0.0

    def wait(times: int) -> bool:
        nonlocal until
        now = time.monotonic()
        if not times:
            until = now + milliseconds / 1000
        if now >= until:
            return False
        time.sleep(min(LOOK_SECONDS, until - now))
        return True

    connection.set_busy_handler(wait if milliseconds else None)


def _use_log(connection: apsw.Connection) -> None:
    """Switch to WAL. SQLite refuses at once, without waiting, while another process reads."""
    deadline = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            break
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.pragma("synchronous", 1)  # NORMAL: safe in WAL mode
    # What is deleted is overwritten: no cost that could be measured (400 documents replaced in
    # 15.4 s with it, 15.8 s without), and a secret that was taken out of a document is gone.
    connection.pragma("secure_delete", True)


def _load_vector_extension(connection: apsw.Connection) -> None:
    # find_spec, since importing sqlite_vec imports numpy (0.2 s).
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise FileError("the package sqlite-vec is not installed: pip install sqlite-vec")
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(spec.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)
