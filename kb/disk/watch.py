"""Call back when something below a folder changed, once things are quiet for half a second."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
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


class FolderWatcher:
    """Watches a folder and all below it, in a thread of its own.

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
        """Watch until the folder is replaced or gone."""
        from watchfiles import watch

        # On macOS events name the real place, elsewhere the one that is watched.
        folder = os.path.realpath(self._folder)
        database = os.path.realpath(self._database or os.devnull)
        events = watch(
            folder,
            watch_filter=lambda _, path: _matters(path, folder, database),
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


def _matters(path: str, folder: str, database: str) -> bool:
    if path.startswith(database):
        return False
    try:
        return NOISY_FOLDERS.isdisjoint(Path(path).relative_to(folder).parts)
    except ValueError:
        return True


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino
