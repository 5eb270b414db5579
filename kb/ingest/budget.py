"""How much processor time one document may take, and how many lines it may have.

Parsers meet text that nobody foresaw. A loop that does not end must cost one document, not the
sync or the server: a watching thread raises an exception inside the thread that is past its
budget. It arrives wherever Python code runs, in libraries too, and costs nothing until then.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kb.errors import DocumentTooComplex

__all__ = ["within_budget"]

T = TypeVar("T")

# Real Markdown takes 1 to 2 s a megabyte on one core of a small server, reStructuredText up to 5.
BASE_SECONDS = 5.0
SECONDS_A_CHARACTER = 20 / 1_000_000
# Each line may be a heading, an item of a list and a link: about half a kB of memory. A book of a
# thousand pages has 40,000 lines.
MAXIMUM_LINES = 500_000
WATCH_SECONDS = 0.25
# Something on the way may have caught the exception and gone on.
AGAIN_SECONDS = 2.0


def within_budget(text: str, work: Callable[[], T]) -> T:
    """The result of work on a text, if it comes in the time that a text of its length may take.

    Counted is the thread's own processor time, so that a busy machine changes nothing.

    Raises:
        DocumentTooComplex: it was not ready by then, or the text has too many lines.
    """
    lines = text.count("\n")
    if lines > MAXIMUM_LINES:
        raise DocumentTooComplex(
            f"has {lines:,} lines, more than the limit of {MAXIMUM_LINES:,}: split it or exclude it"
        )
    allowed = BASE_SECONDS + len(text) * SECONDS_A_CHARACTER
    watched = _Watched(allowed)
    try:
        try:
            _watcher.add(watched)
            return work()
        finally:
            _watcher.remove(watched)
    except _OutOfTimeError:
        _watcher.remove(watched)  # the exception may have come before it was done above
        raise DocumentTooComplex(
            f"takes more than {allowed:.0f} s to read and was given up: a structure in it is too "
            "complex; simplify or split it, or exclude it"
        ) from None


class _OutOfTimeError(BaseException):
    """Not an Exception, so that no library takes it for one of its own."""


class _Watched:
    """The calling thread at work on one document."""

    def __init__(self, allowed: float) -> None:
        self.thread = threading.get_ident()
        self.clock = _thread_clock()
        self.end = self.clock() + allowed
        self.was_stopped = False


class _Watcher:
    """Looks at the documents under way, in a thread that runs while there are any."""

    def __init__(self) -> None:
        # A plain lock: taking it cannot be interrupted half-way by the exception.
        self._lock = threading.Lock()
        self._watched: set[_Watched] = set()
        self._is_running = False

    def add(self, watched: _Watched) -> None:
        with self._lock:
            self._watched.add(watched)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="kb-budget", daemon=True).start()

    def remove(self, watched: _Watched) -> None:
        """Watch it no longer; afterwards no exception comes any more."""
        with self._lock:
            self._watched.discard(watched)
            if watched.was_stopped:
                _raise_in(watched.thread, None)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._watched:
                    self._is_running = False
                    return
                for watched in self._watched:
                    if watched.clock() > watched.end:
                        watched.was_stopped = True
                        watched.end = watched.clock() + AGAIN_SECONDS
                        _raise_in(watched.thread, _OutOfTimeError)
            time.sleep(WATCH_SECONDS)


_watcher = _Watcher()


def _thread_clock() -> Callable[[], float]:
    """The processor time of the calling thread, for others to read; else the time of day."""
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        return lambda: time.clock_gettime(clock)
    return time.monotonic


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Raise it in another thread at that thread's next step; None takes back what waits."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(exception) if exception else None
    )
