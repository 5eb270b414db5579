"""Call back when something below a folder changed, once things are quiet for half a second."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from kb.disk.skipped import NOISY_FOLDERS

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

    What changed is not told: the callback looks at the whole folder, so that an event that got
    lost (a folder made and filled before it was watched) is made good by the next one.

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
        self._database = str(database.absolute()) if database is not None else ""
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._polling: bool | None = None  # None: as watchfiles finds right
        self.watching = threading.Event()  # set once changes are seen
        self._thread = threading.Thread(target=self._run, name="kb-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look_again(self) -> None:
        """Call back soon, though nothing changed."""
        self._asked.set()

    def stop(self) -> None:
        """Stop; a callback that is under way gets a second to end."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with _kept(self._folder) as identity:
                    self._watch(identity)
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
        """Watch until the folder is another one, or gone."""
        from watchfiles import watch

        events = watch(
            self._folder,
            watch_filter=lambda _, path: self._matters(path),
            debounce=LONGEST_WAIT_MILLISECONDS,
            step=QUIET_MILLISECONDS,
            stop_event=self._stopping,
            rust_timeout=CHECK_MILLISECONDS,
            yield_on_timeout=True,  # as an empty set
            force_polling=self._polling,
            poll_delay_ms=POLL_MILLISECONDS,
        )
        wanted = True  # once for what changed before the watch stood
        for changes in events:
            if changes or wanted or self._asked.is_set():
                self._asked.clear()
                wanted = self._call()
                self.watching.set()
            if _identity(self._folder) != identity:
                return

    def _matters(self, path: str) -> bool:
        if self._database and path.startswith(self._database):
            return False
        try:
            parts = Path(path).relative_to(self._folder).parts
        except ValueError:
            return True
        return NOISY_FOLDERS.isdisjoint(parts)

    def _call(self) -> bool:
        try:
            return not self._stopping.is_set() and self._changed()
        except Exception:
            if not self._stopping.is_set():
                log.exception("following the changes in %s failed", self._folder)
            return False


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[tuple[int, int]]:
    """What tells a folder from another one that takes its place.

    It is held open meanwhile, since the number of a deleted one is given to the next.
    """
    if os.name != "posix":
        status = os.stat(folder)
        yield status.st_dev, status.st_ino
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(descriptor)
        yield status.st_dev, status.st_ino
    finally:
        os.close(descriptor)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino
