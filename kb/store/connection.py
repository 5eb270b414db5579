"""One SQLite connection, which runs the statements of `kb/queries/*.sql` by their names.

A statement is a line `-- name: NAME`, a comment that says what it is for, and its SQL. Behind the
name `!` says that it changes something, `$` that it gives one value.

No statement runs for ever: one thread of the process interrupts those that take too long, and
whoever waits for a call that a thread does may stop it. A stranger's file may hold pages that lead
in circles, or a value that takes an hour to read. SQLite checks for an interruption in every loop,
but not for a progress handler (`count(*)` of a table), which also costs time. The limit is
processor time: a busy machine ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import apsw

from kb.disk.holders import companion, holders
from kb.disk.stop import current_stop
from kb.disk.system import thread_clock
from kb.errors import BusyError, DamagedFileError, FileError
from kb.settings import PACKAGE


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of damaged text, into kb's own."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
        raise BusyError(
            f"{path} is being written by {_writer(path)}: try again when it is done", path=str(path)
        ) from error
    # FTS5 is always there, but a new connection asks the file for it.
    except (apsw.NotADBError, apsw.CorruptError, apsw.NoFTS5Error) as error:
        raise DamagedFileError(
            f"{path} is damaged or no SQLite file ({error}): restore a copy, or delete "
            "it and sync again"
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedFileError(
            f"{path} is damaged: a text in it cannot be read ({error}). `kb doctor` looks "
            "at all of it; restore a copy, or delete the file and sync again"
        ) from error
    except apsw.SQLError as error:
        # Every statement is tested with the schema: a table, or the width of a vector, differs.
        raise DamagedFileError(
            f"{path} is damaged, or another program has changed it ({error}): `kb doctor` "
            "says what is wrong, `kb doctor --fix` makes anew what it can; else restore a copy"
        ) from error
    except (apsw.InterruptError, apsw.ConnectionClosedError) as error:
        raise FileError(f"{path} was closed while it was read") from error
    except apsw.FullError as error:
        raise FileError(f"the disk is full while writing {path}") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.PermissionsError) as e:
        raise FileError(f"cannot use {path}: {e}{_hint(path)}", path=str(path)) from e


def _hint(path: Path) -> str:
    """What it takes to read a file with a log that no other process has open."""
    with contextlib.suppress(OSError):
        if companion(path, "-wal").stat().st_size:
            return (
                f". {path.name}-wal beside it holds writes that can only be read where there is "
                "room and may be written: make room, or copy both files to another folder"
            )
    return ""


def _writer(path: Path) -> str:
    """The processes that have the file open, where the system tells."""
    numbers = [str(holder.process) for holder in holders(path)]
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    return f"another process ({' or '.join(numbers)})" if numbers else "another process"


# Seconds that a statement may take, and seconds more for each megabyte of the file.
OWN = 60.0, 1.0  # a hundred times what the slowest take, which read or write all of it
# In a file that this user neither made nor confirmed: to read all of it, or for an answer.
STRANGERS_LONG = 1.2, 0.5
STRANGERS = 1.2, 0.01
LOOKS = 5  # until a deadline has passed

_deadlines: weakref.WeakSet[Deadline] = weakref.WeakSet()
_lock = threading.Lock()
_changed = threading.Event()
_watch: threading.Thread | None = None
_clocks = threading.local()  # each thread's `thread_clock`


class Deadline:
    """How long a connection's statements may take; each runs in a `with` of this.

    `is_own`: this user made or confirmed the file.
    """

    def __init__(self, connection: apsw.Connection, path: Path, *, is_own: bool) -> None:
        self._connection = connection
        self._path = path
        self._limit = OWN if is_own else STRANGERS_LONG
        self._clock: Callable[[], float] | None = None  # of the thread that runs a statement
        self._number = 0  # of the statement
        self._began = (0, 0.0)  # which statement was seen first when, by that clock
        self._is_over = False
        global _watch, _clocks
        with _lock:
            _deadlines.add(self)
            if _watch is None or not _watch.is_alive():  # a fork has no thread but its own
                _clocks = threading.local()
                _watch = threading.Thread(target=_watch_all, name="deadlines", daemon=True)
                _watch.start()

    def set_long(self, is_long: bool) -> None:
        """Whether statements may look at all of a stranger's file, or read for an answer."""
        if self._limit != OWN:
            self._limit = STRANGERS_LONG if is_long else STRANGERS
            _changed.set()

    def seconds(self) -> float:
        """How long a statement may take."""
        try:
            size = os.path.getsize(self._path)
        except OSError:  # it is being moved, or lies in memory
            size = 0
        return self._limit[0] + self._limit[1] * size / 1e6

    def __enter__(self) -> None:
        if (stop := current_stop.get()) and not stop.begins(self._connection.interrupt):
            raise apsw.InterruptError("nobody waits for the answer")
        self._number += 1
        self._is_over = False
        try:
            self._clock = _clocks.now
        except AttributeError:
            self._clock = _clocks.now = thread_clock()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._clock = None
        if stop := current_stop.get():
            stop.ended()
        if self._is_over and isinstance(error, apsw.InterruptError):
            raise FileError(
                f"{self._path} cannot be read: a statement took more than {self.seconds():.1f} s "
                "of processor time. `kb doctor` looks for damage; if the file is yours, `kb trust` "
                "gives it more time",
                path=str(self._path),
            ) from error

    def look(self) -> float:
        """Interrupt the statement that runs, if it has taken longer than it may: the seconds."""
        number, clock, seconds = self._number, self._clock, self.seconds()
        if clock is None:
            return seconds
        with contextlib.suppress(OSError, apsw.ConnectionClosedError):  # it ended meanwhile
            now = clock()
            if self._began[0] != number:
                self._began = (number, now)
            elif now - self._began[1] > seconds:
                self._is_over = True
                self._connection.interrupt()
        return seconds


def _watch_all() -> None:
    while True:
        with _lock:
            deadlines = list(_deadlines)
        shortest = min((deadline.look() for deadline in deadlines), default=OWN[0])
        del deadlines  # what nobody uses goes
        _changed.wait(shortest / LOOKS)
        _changed.clear()


# As in schema.sql, beneath porter: the words of a text before they are stemmed.
TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co M*"]

MAX_CACHED = 10_000  # entries under one name

T = TypeVar("T")
Row = dict[str, Any]
IndexedRow = apsw.FTS5ExtensionApi  # a row of the keyword index, for functions of it

_HEAD = re.compile(r"^-- name: (\w+)[!$]?\n(?:--.*\n)*", re.MULTILINE)


def statement(name: str) -> str:
    return _statements()[name]


@cache  # not by a library, which took .05 s of the .14 s of a search by keywords
def _statements() -> dict[str, str]:
    statements: dict[str, str] = {}
    for file in (PACKAGE / "queries").iterdir():
        if file.name.endswith(".sql"):
            _, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
            for name, sql in zip(parts[::2], parts[1::2], strict=True):
                if name in statements:
                    raise ValueError(f"statement {name} is defined twice, again in {file.name}")
                statements[name] = sql.strip()
    return statements


class Connection:
    """One SQLite connection that runs statements by their names.

    A parameter that is a list, tuple or set is bound as JSON, for statements to read with
    `json_each`.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        folder: str = "",
        project: str = "",
        *,
        is_own: bool = True,
    ) -> None:
        self.apsw = connection
        self.deadline = Deadline(connection, path, is_own=is_own)  # of what is executed here
        # Sources are relative to `folder`; the file belongs to `project`. Absolute, "" for none.
        self.folder = folder
        self.project = project
        self._cache: dict[str, tuple[tuple[int, int], Any]] = {}
        self._added_runs: set[bytes] = set()
        self._added_version = 0
        self._data_version: int | None = None  # of this transaction
        self._index_functions: set[str] = set()

    def begin(self, how: str = "BEGIN") -> None:
        """Begin a transaction: what others wrote until now counts."""
        self.apsw.execute(how)
        self._data_version = None

    def forget(self) -> None:
        """Drop what is cached, as after a rollback."""
        self._cache.clear()
        self._added_runs = set()

    def once(self, name: str, read: Callable[[], T]) -> T:
        """What `read` returns, called again only after a change; call it inside a read or write."""
        stamp = self.version(), self.apsw.total_changes()
        entry = self._cache.get(name)
        if entry is None or entry[0] != stamp:
            entry = self._cache[name] = stamp, read()
        value: T = entry[1]
        return value

    def cached(self, name: str) -> dict[Any, Any]:
        """A dictionary for its caller's notes, empty again after each change of the file."""
        notes: dict[Any, Any] = self.once(name, dict)
        if len(notes) > MAX_CACHED:
            notes.clear()
        return notes

    def version(self) -> int:
        """A number that changes whenever others change the file; constant in a transaction."""
        if self._data_version is None:
            version: Any = self.apsw.pragma("data_version")
            self._data_version = int(version)
        return self._data_version

    def added_runs(self) -> set[bytes]:
        """Runs known to be in the vocabulary; others' writes may delete words, and clear them."""
        if (version := self.version()) != self._added_version:
            self._added_runs, self._added_version = set(), version
        return self._added_runs

    def tokenize(self, text: str, *, stem: bool = False) -> list[tuple[int, int, str]]:
        """The terms of a text as the keyword index cuts and folds them, in order.

        Args:
            stem: the index's own terms; else the folded words that they are stems of.

        Returns:
            (start, end, term) each, in characters.
        """
        utf8 = text.encode()
        tokenizer = self._stemming if stem else self._folding
        tokens: Any = tokenizer(utf8, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)
        if len(utf8) == len(text):
            return list(tokens)
        terms: list[tuple[int, int, str]] = []
        byte = character = 0
        for first, last, term in tokens:
            start = character + len(utf8[byte:first].decode())
            byte, character = last, start + len(utf8[first:last].decode())
            terms.append((start, character, term))
        return terms

    def stems(self, text: str) -> list[str]:
        """The keyword index's terms of a text, in order: 7 us a passage, `tokenize` takes 18."""
        how = {"include_offsets": False, "include_colocated": False}
        tokens: Any = self._stemming(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, **how)
        return list(tokens)

    @cached_property
    def _stemming(self) -> apsw.FTS5Tokenizer:
        return self.apsw.fts5_tokenizer("porter", TOKENIZER)

    @cached_property
    def _folding(self) -> apsw.FTS5Tokenizer:
        return self.apsw.fts5_tokenizer(TOKENIZER[0], TOKENIZER[1:])

    def add_index_function(self, function: Callable[..., float]) -> None:
        """Register a function of an `IndexedRow` and what follows it in the call, by its name."""
        name = function.__name__
        if name not in self._index_functions:
            self.apsw.register_fts5_function(name, function)
            self._index_functions.add(name)

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """All result rows, each with the SELECT's aliases as keys."""
        with self.deadline:
            cursor = self._execute(name, parameters)
            try:
                names = [column for column, _ in cursor.get_description()]
            except apsw.ExecutionCompleteError:  # no row: apsw keeps no description
                return []
            try:
                return [dict(zip(names, row, strict=True)) for row in cursor]
            except BaseException:
                # The error's traceback keeps the cursor; an open one keeps the file from writers.
                cursor.close(True)
                raise

    def row(self, name: str, /, **parameters: Any) -> Row | None:
        return next(iter(self.rows(name, **parameters)), None)

    def tuples(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """All result rows as tuples, for bulk reads."""
        with self.deadline:
            return self._execute(name, parameters).fetchall()

    def column(self, name: str, /, **parameters: Any) -> list[Any]:
        return [row[0] for row in self.tuples(name, **parameters)]

    def iterate(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Result rows as tuples one by one, for a caller who may stop before the last."""
        with self.deadline:
            cursor = self._execute(name, parameters)
        while True:
            with self.deadline:  # not while the caller has the row
                row = next(cursor, None)
            if row is None:
                return
            yield row

    def value(self, name: str, /, **parameters: Any) -> Any:
        with self.deadline:
            for row in self._execute(name, parameters):
                return row[0]
        return None

    def count(self, name: str, /, **parameters: Any) -> int:
        """As `value`, of a statement that gives a number."""
        return int(self.value(name, **parameters))

    def run(self, name: str, /, **parameters: Any) -> int:
        """Execute; the number of rows it changed."""
        with self.deadline:
            self._execute(name, parameters).fetchall()
        return self.apsw.changes()

    def run_many(self, name: str, /, parameters: Iterable[dict[str, Any]]) -> None:
        """Execute once for each set of parameters; those that the statement lacks are ignored."""
        with self.deadline:
            self.apsw.executemany(statement(name), parameters)

    def _execute(self, name: str, parameters: dict[str, Any]) -> apsw.Cursor:
        for key, value in parameters.items():
            if isinstance(value, (list, tuple, set)):
                parameters[key] = json.dumps(list(value))
        return self.apsw.execute(_statements()[name], parameters)

    def changes(self) -> int:
        """How many rows this connection has changed, those of indexes included."""
        return self.apsw.total_changes()

    def release_pages(self, share: float) -> None:
        """Give free pages back to the disk, but for this share of the file."""
        free, pages = (self._number(name) for name in ("freelist_count", "page_count"))
        if (surplus := int(free - share * pages)) > 0:
            with self.deadline:
                self.apsw.execute(f"PRAGMA incremental_vacuum({surplus})").fetchall()

    def compact(self) -> None:
        """Write the file anew without its free pages."""
        with self.deadline:
            self.apsw.execute("VACUUM")

    def size(self) -> tuple[int, int]:
        """Bytes of the file, and of a page."""
        page = self._number("page_size")
        return page * self._number("page_count"), page

    def _number(self, pragma: str) -> int:
        number: Any = self.apsw.pragma(pragma)
        return int(number)

    def last_id(self) -> int:
        return self.apsw.last_insert_rowid()

    def versions(self) -> dict[str, str]:
        """Of SQLite and the vector extension."""
        vector = self.value("vector_extension_version")
        return {"sqlite": apsw.sqlite_lib_version(), "vector": vector}

    def integrity(self, limit: int) -> list[str]:
        """What SQLite finds wrong with pages, rows and indexes; reads the whole file."""
        # FTS5 remembers where an index's parts lie, and asks whether another connection has merged
        # them only before a query: without one it takes those that are gone for lost.
        with contextlib.suppress(apsw.Error):
            self.tuples("refresh_keyword_index")
        with self.deadline:
            rows: Any = self.apsw.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
        return [message for (message,) in rows if message != "ok"]

    def broken_references(self) -> list[tuple[str, str]]:
        """Table and missing parent of every row that refers to a row that is not there."""
        with self.deadline:
            rows: Any = self.apsw.execute("PRAGMA foreign_key_check").fetchall()
        return [(child, parent) for child, _, parent, _ in rows]
