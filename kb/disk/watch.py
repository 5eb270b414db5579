"""What changes below folders: told to a watcher, or seen in the state of the files."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kb.disk.skipped import NOISY_FOLDERS
from kb.disk.system import kept_folder

log = logging.getLogger("kb.watch")

QUIET_MILLISECONDS = 500
# Somebody who writes without a pause does not put the callback off for longer than this.
LONGEST_WAIT_MILLISECONDS = 1500
# How often a folder is looked at: a deleted or replaced one sends no further events.
CHECK_MILLISECONDS = 500
POLL_MILLISECONDS = 1000
UNTOLD_MILLISECONDS = 2000  # between looks at a folder whose changes cannot be told
STOP_SECONDS = 1
LOOK_SECONDS = 3.0  # between two looks, at least; 20 times as long as one took
LOOK_SHARE = 20


class FolderWatcher:
    """Calls back when something below a folder changed, once things are quiet for half a second.

    The callback looks at the whole folder, so that an event that got lost (a folder made and
    filled before it was watched) is made good by the next one.

    Args:
        folder: it may be deleted and come back.
        changed: called in the watcher's thread, never twice at a time; returns whether it left
            something to do and wants to be called again soon. What it raises is logged.
        database: a knowledge base file whose own writes are no change.
    """

    def __init__(
        self, folder: Path, changed: Callable[[], bool], database: Path | None = None
    ) -> None:
        self._folder = folder
        self._changed = changed
        self._database = database
        self._stopping = threading.Event()
        self._scan_requested = threading.Event()
        self._polling: bool | None = None  # None: as watchfiles finds right
        self.watching = threading.Event()  # set once changes are seen
        self._thread = threading.Thread(target=self._run, name="kb-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look_again(self) -> None:
        """Call back soon, even if nothing changed."""
        self._scan_requested.set()

    def stop(self) -> None:
        """Stop; a running callback gets a second to end."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with kept_folder(self._folder) as status:
                    self._watch((status.st_dev, status.st_ino))
                    continue
            except FileNotFoundError:
                pass  # deleted: it may come back
            except (UnicodeError, RuntimeError) as error:
                # The watcher knows no name that is not UTF-8, be it the folder's or one in it.
                log.info("%s is looked at from time to time: %s", self._folder, error)
                self._call()
                self.watching.set()
                self._stopping.wait(UNTOLD_MILLISECONDS / 1000)
                continue
            except OSError as error:
                # As a rule the system's limit on watched folders: look at the files instead.
                log.info("%s is polled for changes: %s", self._folder, error)
                self._polling = True
            self._stopping.wait(CHECK_MILLISECONDS / 1000)

    def _watch(self, identity: tuple[int, int]) -> None:
        from watchfiles import watch

        # On macOS events name the real place, elsewhere the one that is watched.
        folder = os.path.realpath(self._folder)
        database = os.path.realpath(self._database or os.devnull)

        def matters(_: object, path: str) -> bool:
            try:
                parts = Path(path).relative_to(folder).parts
            except ValueError:
                parts = ()
            return not path.startswith(database) and NOISY_FOLDERS.isdisjoint(parts)

        events = watch(
            folder,
            watch_filter=matters,
            debounce=LONGEST_WAIT_MILLISECONDS,
            step=QUIET_MILLISECONDS,
            stop_event=self._stopping,
            rust_timeout=CHECK_MILLISECONDS,
            yield_on_timeout=True,  # as an empty set
            force_polling=self._polling,
            poll_delay_ms=POLL_MILLISECONDS,
        )
        has_changed = True  # once for what changed before the watch stood
        for changes in events:
            if changes or has_changed or self._scan_requested.is_set():
                self._scan_requested.clear()
                has_changed = self._call()
                self.watching.set()
            if _identity(self._folder) != identity:
                return

    def _call(self) -> bool:
        try:
            return not self._stopping.is_set() and self._changed()
        except Exception:
            if not self._stopping.is_set():
                log.exception("following the changes in %s failed", self._folder)
            return False


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class FolderStates:
    """Folders as they were last looked at, told by the state of their files alone: 3 ms for 1,000.

    Writes of the file `database` do not count.
    """

    def __init__(self, database: Path) -> None:
        self._database = str(database.absolute())
        self._states: dict[Path, int] = {}
        self.next_look = 0.0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def looking(self) -> Iterator[bool]:
        """Whether it is time for another look, and nobody else takes it."""
        began = time.monotonic()
        if began < self.next_look or not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            now = time.monotonic()
            self.next_look = now + max(LOOK_SECONDS, LOOK_SHARE * (now - began))
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
