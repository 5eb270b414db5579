"""No statement runs for ever: one thread of the process interrupts those that take too long, and
whoever waits for a call that a thread does may stop it.

A stranger's file may hold pages that lead in circles, or a value that takes an hour to read. SQLite
checks for an interruption in every loop, but not for a progress handler (`count(*)` of a table),
which also costs time. The limit is processor time: a busy machine ends nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import apsw

from kb.disk.stop import current_stop
from kb.disk.system import thread_clock
from kb.errors import FileError

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
        global _watch
        with _lock:
            _deadlines.add(self)
            if _watch is None or not _watch.is_alive():  # a fork has no thread but its own
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
        self._clock = thread_clock()

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
