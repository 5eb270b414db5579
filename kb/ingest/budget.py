"""How much processor time one document may take, and how many lines it may have.

A parser that does not end must cost one document, not the sync or the server. So a watching thread
raises an exception in the thread that is past its budget: it arrives wherever Python code runs, in
libraries too, and costs nothing until then.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kb.disk.system import thread_clock
from kb.errors import DocumentTooComplex

T = TypeVar("T")

# Real Markdown takes 1 to 2 s a megabyte on one core of a small server, reStructuredText up to 5.
BASE_SECONDS = 5.0
SECONDS_A_CHARACTER = 20 / 1_000_000
# A line may be a heading, an item and a link: half a kB. A book of 1,000 pages has 40,000 lines.
MAXIMUM_LINES = 500_000
WATCH_SECONDS = 0.25
AGAIN_SECONDS = 2.0  # until it is raised once more: something may have caught it


def within_budget(text: str, work: Callable[[], T]) -> T:
    """The result of work on a text, if it comes in the time that a text of its length may take.

    Counted is the thread's own processor time, so that a busy machine changes nothing.

    Raises DocumentTooComplex if it was not ready by then, or the text has too many lines.
    """
    lines = text.count("\n")
    if lines > MAXIMUM_LINES:
        raise DocumentTooComplex(
            f"has {lines:,} lines, more than the limit of {MAXIMUM_LINES:,}: split it or exclude it"
        )
    seconds = BASE_SECONDS + len(text) * SECONDS_A_CHARACTER
    job = _Job(seconds)
    try:
        try:
            _add(job)
            return work()
        finally:
            _remove(job)
    except _OutOfTimeError:
        _remove(job)  # the exception may have come before it was done above
        raise DocumentTooComplex(
            f"takes more than {seconds:.0f} s to read and was given up: a structure in it is too "
            "complex; simplify or split it, or exclude it"
        ) from None


class _OutOfTimeError(BaseException):
    """Not an Exception, so that no library takes it for one of its own."""


class _Job:
    def __init__(self, seconds: float) -> None:
        self.thread = threading.get_ident()
        self.clock = thread_clock()
        self.seconds = seconds
        self.end: float | None = None  # by the clock, from when the watcher sees it first
        self.was_stopped = False


# The jobs under way. A plain lock: taking it cannot be interrupted half-way by the exception.
_jobs: set[_Job] = set()
_lock = threading.Lock()
_watcher: threading.Thread | None = None


def _add(job: _Job) -> None:
    """Watch a job, in a thread that runs while there are any."""
    global _watcher
    with _lock:
        _jobs.add(job)
        if _watcher is None:
            _watcher = threading.Thread(target=_watch, name="kb-budget", daemon=True)
            _watcher.start()


def _remove(job: _Job) -> None:
    """Stop watching a job; after this it gets no exception."""
    with _lock:
        _jobs.discard(job)
    if job.was_stopped:
        # Replaced, not removed: with None CPython would go on looking for it at every step.
        with contextlib.suppress(_OutOfTimeError):
            _raise_in(job.thread, _OutOfTimeError)
            while True:
                pass


def _watch() -> None:
    global _watcher
    while True:
        with _lock:
            if not _jobs:
                _watcher = None
                return
            for job in _jobs:
                if job.end is None:
                    job.end = job.clock() + job.seconds
                elif job.clock() > job.end:
                    job.was_stopped = True
                    job.end = job.clock() + AGAIN_SECONDS
                    _raise_in(job.thread, _OutOfTimeError)
        time.sleep(WATCH_SECONDS)


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise an exception at a thread's next step, in place of one that waits."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
