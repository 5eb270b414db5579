"""Whether what lies in a folder changed, told by the state of its files alone: 3 ms for 1,000."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from kb.disk.skipped import NOISY_FOLDERS

SECONDS = 3.0  # between two looks, at least; 20 times as long as one took
SHARE = 20


class FolderStates:
    """Folders as they were last looked at; the own writes of the file `database` do not count."""

    def __init__(self, database: Path) -> None:
        self._database = str(database.absolute())
        self._states: dict[Path, int] = {}
        self._next = 0.0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def looking(self) -> Iterator[bool]:
        """Whether it is time for another look, and nobody else takes it."""
        began = time.monotonic()
        if began < self._next or not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            now = time.monotonic()
            self._next = now + max(SECONDS, SHARE * (now - began))
            self._lock.release()

    def has_changed(self, folder: Path, since: float) -> bool:
        """Whether a folder has changed since the last look, or before the first since this time."""
        try:
            state, newest = self._look(str(folder))
        except OSError:
            return False
        before = self._states.get(folder)
        self._states[folder] = state
        return newest >= since if before is None else state != before

    def _look(self, folder: str) -> tuple[int, float]:
        """The state of all files below a folder, and when the last one changed, came or went."""
        state, newest = 0, 0
        pending = [folder]
        while pending:
            place = pending.pop()
            if os.path.dirname(self._database) != place:  # where a log comes and goes
                newest = max(newest, os.stat(place).st_ctime_ns)
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in NOISY_FOLDERS:
                            pending.append(entry.path)
                    elif not entry.path.startswith(self._database):
                        status = entry.stat(follow_symlinks=False)
                        newest = max(newest, status.st_ctime_ns)
                        state ^= hash(
                            (entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                        )
        return state, newest / 1e9
