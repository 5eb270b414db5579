"""A copy on this machine that follows a destination, and is whole at every moment.

`litestream restore -f` writes each transaction that arrives into its file in place. Nobody reads
that file: a broken transfer leaves half a transaction in it, and SQLite does not see its pages
change. Between two transactions the file is copied, and the copy replaces the one that is read at
once; those who read the old one keep it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
from datetime import datetime
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from kb.disk.system import copy_contents, lock_shared, replace
from kb.errors import KbError, SourceError
from kb.settings import user_cache
from kb.store.database import AttachedFiles, Database
from kb.store.replication.litestream import (
    Destination,
    explain,
    newest,
    parse_destination,
    start,
    temporary_configuration,
)

log = logging.getLogger("kb.store.replication")

# Between two looks at the destination: one listing, nine if nothing is new. Some bill for each.
INTERVALS = {"s3": "2s"}
INTERVAL = "1s"
LOOK_SECONDS = 0.2
FIRST_SECONDS = 600.0  # for the first copy of all
PAUSE_SECONDS = 2.0  # at most, after a copy that took long
WATCH_SECONDS = 30.0  # between two looks whether Litestream stands still
AGAIN_SECONDS = 5.0
LATE_SECONDS = 15.0  # after the last failure, for which it is told
# Where SQLite locks for reading: Litestream waits for that before it writes.
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510
APPLIED = "follow: applied updates"
FAILED = "follow: error applying updates"


class Follower:
    """The copy, and the thread that keeps it new. Raises SourceError if none can be fetched."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self._folder = _own_folder()
        self._lock = FileLock(self._folder / "lock")
        self._lock.acquire()
        self.file = self._folder / "kb.db"
        self._copied = 0  # the number of the transaction that the copy is as of
        self._failed = False  # the last thing that Litestream said of a transaction
        self._failed_at = -math.inf  # by the clock that only goes on
        self._failing_since = ""
        self._process: subprocess.Popen[str] | None = None
        self._first_failure: SourceError | None = None
        self._ended = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        try:
            if newest(destination) is None:
                raise SourceError(
                    f"there is no copy at {destination.address} yet: `kb replicate "
                    f"{destination.address}` makes one, where the file is written"
                )
            self._thread.start()
            if not self._ready.wait(FIRST_SECONDS) or self._first_failure:
                raise self._first_failure or SourceError(
                    f"the copy at {destination.address} has not arrived in {FIRST_SECONDS:.0f} s"
                )
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        self._ended.set()
        if self._process is not None:
            self._process.kill()  # a server does not wait for its threads
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(AGAIN_SECONDS)
        self._lock.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def late(self) -> list[str]:
        """That the copy may be behind, while the destination does not answer."""
        if time.monotonic() - self._failed_at > LATE_SECONDS:
            return []
        return [
            f"This copy may lack what was written since {self._failing_since}: "
            f"{self.destination.address} does not answer."
        ]

    def _note_failure(self, failure: object) -> None:
        log.warning("following %s: %s", self.destination.address, failure)
        if not self.late():
            self._failing_since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        self._failed_at = time.monotonic()

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._run_litestream()
            except (KbError, OSError) as error:
                self._note_failure(error)
                if not self._ready.is_set():
                    self._first_failure = SourceError(str(error))
                    self._ready.set()
                    return
            self._ended.wait(AGAIN_SECONDS)

    def _run_litestream(self) -> None:
        """Follow from a new copy until Litestream stops: the old may hold half a transaction."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            file = Path(folder) / "arriving.db"
            with temporary_configuration(self.destination) as (name, configuration):
                interval = INTERVALS.get(self.destination.kind, INTERVAL)
                words = [
                    *("restore", "-config", str(configuration), "-json", "-f"),
                    *("-follow-interval", interval, "-o", str(file), name),
                ]
                complaints: list[str] = []
                process, reader = start(self.destination, words, partial(self._hear, complaints))
                try:
                    self._process, self._failed, self._copied = process, False, 0
                    self._publish_until_still(process, file)
                    ended = process.poll() is not None
                finally:
                    process.kill()
                    process.wait()
                    reader.join(LOOK_SECONDS)
            if ended and not self._ended.is_set():
                raise SourceError(explain(" ".join(complaints), self.destination))

    def _publish_until_still(self, process: subprocess.Popen[str], file: Path) -> None:
        next_watch = time.monotonic() + WATCH_SECONDS
        behind = 0  # the transaction at which it was last seen to be behind
        while process.poll() is None and not self._ended.wait(LOOK_SECONDS):
            started = time.monotonic()
            if self._publish(file):
                self._ready.set()
                self._ended.wait(min(3 * (time.monotonic() - started), PAUSE_SECONDS))
            if time.monotonic() < next_watch:
                continue
            next_watch = time.monotonic() + WATCH_SECONDS
            try:
                number, latest = _number(file), newest(self.destination)
            except SourceError as error:
                self._note_failure(error)
                continue
            is_behind = latest is not None and latest.number > number == _number(file)
            if is_behind and behind == number:  # once may be an unlucky moment
                log.warning("following %s anew: it stood still", self.destination.address)
                return
            behind = number if is_behind else 0

    def _publish(self, arriving: Path) -> bool:
        number = _number(arriving)
        if number <= self._copied or not _is_between(arriving):
            return False
        fresh = self._folder / "fresh.db"
        with open(arriving, "rb") as source, open(fresh, "wb") as target:
            if not lock_shared(source, SHARED_FIRST, SHARED_SIZE) or _number(arriving) != number:
                return False
            if not _is_between(arriving) or self._failed:
                return False
            copy_contents(source, target)
        if self._failed or not _is_between(arriving):
            return False
        replace(fresh, self.file)
        self._copied = number
        return True

    def _hear(self, complaints: list[str], line: str) -> None:
        """A transaction that could not be read has left half of it in the file."""
        text = line.strip()
        if APPLIED in text:
            self._failed = False
        elif FAILED in text:
            self._failed = True
            self._note_failure(text)
        elif text:
            complaints[:] = [text]


def open_replica(address: str, writer: str) -> tuple[Database, AttachedFiles]:
    """A file that follows an address and refuses writes, and what says when it may be behind.

    `writer` says where to write instead. Raises SourceError as `Follower`, and UsageError if the
    address is malformed.
    """
    destination = parse_destination(address)
    where = writer or f"the server of the file that `kb replicate {destination.address}` copies"
    replica = _Replica(
        Follower(destination),
        f"this is a copy that follows {destination.address}, and is only read: write to {where}",
    )
    return replica, AttachedFiles(late=replica.follower.late)


class _Replica(Database):
    """The file of a follower, which ends with it."""

    def __init__(self, follower: Follower, refusal: str) -> None:
        self.follower = follower
        try:
            super().__init__(follower.file, create=False, refusal=refusal, is_renewed=True)
        except BaseException:
            follower.end()
            raise

    def close(self) -> None:
        super().close()
        self.follower.end()


def _own_folder() -> Path:
    """A new folder for this process; those of killed processes go."""
    folder = user_cache() / "replicas"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in folder.iterdir():
        with contextlib.suppress(Timeout, OSError), FileLock(other / "lock").acquire(timeout=0):
            shutil.rmtree(other, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=folder))


def _number(file: Path) -> int:
    """The last transaction that is complete in the file, as Litestream notes it; 0 for none."""
    try:
        return int(Path(f"{file}-txid").read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return 0


def _is_between(file: Path) -> bool:
    """Whether the file is unchanged since Litestream noted that it is complete."""
    try:
        return os.stat(file).st_mtime_ns <= os.stat(f"{file}-txid").st_mtime_ns
    except OSError:
        return False
