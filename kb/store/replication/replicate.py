"""Litestream beside a file: started, watched, started again, ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout

from kb.errors import BusyError, FileError, SourceError, UsageError
from kb.store.database import Database
from kb.store.replicated import CONTROL, litestream_folder
from kb.store.replication.destination import Destination
from kb.store.replication.litestream import (
    CONFIGURATION,
    configuration,
    explain,
    newest,
    start,
    write_private,
)
from kb.store.replication.state import Said, lock_of, replication_state, say, stored_address

__all__ = ["replicate", "stop"]

LOOK_SECONDS = 0.5
SYNC_SECONDS = 5  # for one question whether everything is copied
AGAIN_SECONDS = (1, 2, 5, 10, 30)  # between two starts of a Litestream that ends
END_SECONDS = 20.0  # for its last copy; it takes 10 itself
LOCK_SECONDS = 2.0


def replicate(
    file: Path,
    destination: Destination,
    tell: Callable[[str], None],
    *,
    goes_on: bool = False,
    once: bool = False,
) -> None:
    """Copy a file to a destination from now on, until a signal ends this process.

    Args:
        tell: called with what a person would want to know.
        goes_on: the copy that is at the destination already is one of this file.
        once: end as soon as everything is there.

    Raises:
        SourceError: the destination cannot be used.
        UsageError: it holds a copy that may be another file's.
        BusyError: another process replicates the file.
    """
    file = file.absolute()  # Litestream is run in another folder
    with Database(file, create=False):  # whatever is wrong with it is said before
        pass
    is_new = stored_address(file) != destination.address
    with _held(file) as made:
        try:
            if is_new:
                _require_free(destination, goes_on=goes_on)
                _forget_state(file)
            folder = litestream_folder(file)
            write_private(folder / CONFIGURATION, configuration(file, destination))
            _Watch(file, destination, tell, once=once).run(is_first=is_new)
        except BaseException:
            if made and not _has_copied(file):
                shutil.rmtree(litestream_folder(file), ignore_errors=True)
                _merge(file)
            raise


def stop(file: Path) -> bool:
    """End the replication of a file for good; whether everything is at the destination.

    Raises:
        UsageError: it is not replicated.
        BusyError: the process that copies it does not end.
    """
    file = file.absolute()
    state = replication_state(file)
    if state is None:
        raise UsageError(f"{file} is not replicated: `kb replicate DESTINATION` begins it")
    if not state.address and state.is_running:
        raise UsageError(
            f"{file} is replicated by a Litestream that kb did not start: end that first"
        )
    if state.process:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.process, signal.SIGTERM)
    lock = lock_of(file)
    try:
        lock.acquire(timeout=END_SECONDS + LOCK_SECONDS)
    except Timeout as error:
        raise BusyError(f"process {state.process} does not end: end it, then try again") from error
    lock.release()
    end_left_over(file)
    last = replication_state(file)
    shutil.rmtree(litestream_folder(file))
    _merge(file)
    return last is not None and state.is_running and not last.error


@contextmanager
def _held(file: Path) -> Iterator[bool]:
    """Be the one process that replicates a file; gives whether its folder is new."""
    folder = litestream_folder(file)
    made = not folder.exists()
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = lock_of(file)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        state = replication_state(file)
        raise BusyError(
            f"{file} is being replicated to {state.address if state else 'a destination'} already"
            f"{f' (process {state.process})' if state and state.process else ''}: "
            "`kb replicate --stop` ends that",
            path=str(file),
        ) from error
    try:
        end_left_over(file)
        yield made
    finally:
        lock.release()


def end_left_over(file: Path) -> None:
    """End a Litestream whose watcher was killed: two of them would write one history."""
    with _working_in(litestream_folder(file)):
        try:
            process = int(_control("GET", "/info")["pid"])
        except (OSError, ValueError, LookupError, http.client.HTTPException):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                _control("GET", "/info")
                time.sleep(0.05)
                continue
            return
        raise BusyError(f"process {process} still replicates {file}: end it, then try again")


def _require_free(destination: Destination, *, goes_on: bool) -> None:
    found = newest(destination)
    if found is not None and not goes_on:
        raise UsageError(
            f"{destination.address} holds a copy already, as of {found.time:%Y-%m-%d %H:%M:%S} UTC:"
            " name another place, or go on with it by --continue if it is one of this file"
        )


def _forget_state(file: Path) -> None:
    """What Litestream knows of another destination, or of a file that was in this place."""
    for place in litestream_folder(file).iterdir():
        if place.is_dir():
            shutil.rmtree(place)


def _has_copied(file: Path) -> bool:
    state = replication_state(file)
    return state is not None and state.copied_at is not None


def _merge(file: Path) -> None:
    """Make the file alone complete again, as an ordinary one is."""
    with contextlib.suppress(FileError), Database(file, create=False) as database:
        database.merge_log()


class _Watch:
    """One Litestream after another, until this process is told to end."""

    def __init__(
        self, file: Path, destination: Destination, tell: Callable[[str], None], *, once: bool
    ) -> None:
        self.file = file
        self.folder = litestream_folder(file)
        self.destination = destination
        self.tell = tell
        self.once = once
        self._sync = {"path": os.path.realpath(file), "wait": True}
        self.said = Said(os.getpid(), _now())
        self._error = ""
        self._last_line = ""
        self._told = ""

    def run(self, *, is_first: bool) -> None:
        """Until an exception ends it, such as the one of Ctrl-C.

        Raises:
            SourceError: the destination cannot be used from the start.
        """
        failures = 0
        while True:
            started = time.monotonic()
            copied = self._one()
            if copied and self.once:
                return
            if not copied and (is_first or self.once):
                raise SourceError(explain(self._last_line, self.destination))
            is_first = False
            failures = 0 if copied else failures + 1
            said = self._last_line
            why = explain(said, self.destination) if said else "Litestream ended unasked"
            self._say(error=f"{why}; it is started again")
            pause = AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)]
            time.sleep(max(pause - (time.monotonic() - started), AGAIN_SECONDS[0]))

    def _one(self) -> bool:
        """Run Litestream until it ends; whether it copied anything."""
        self._error = self._last_line = ""
        copied = False
        with _working_in(self.folder):
            Path(CONTROL).unlink(missing_ok=True)
            # In a session of its own, so that Ctrl-C ends it once, by us, after its last copy.
            words = ["replicate", "-config", CONFIGURATION]
            process, reader = start(self.destination, words, self._hear, in_own_session=True)
            try:
                while process.poll() is None:
                    if at := self._copied_at():
                        copied, self._error = True, ""
                        self._say(copied_at=at)
                        if self.once:
                            self._end(process)
                            break
                    elif self._error:
                        self._say(error=self._error)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_SECONDS)
            except BaseException:
                self._end(process)
                raise
            reader.join(LOOK_SECONDS)
        return copied

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Ask for the last copy, and wait for it."""
        asked = _now()
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode == 0 and not self._error:
            self._say(copied_at=asked)

    def _hear(self, line: str) -> None:
        """What it logs: errors, and that they are over."""
        try:
            entry = json.loads(line)
        except ValueError:
            self._last_line = line
            return
        message = str(entry.get("msg", ""))
        if entry.get("level") == "ERROR":
            self._last_line = str(entry.get("error", message))
            self._error = explain(self._last_line, self.destination)
        elif "recovered" in message or "recovery complete" in message:
            self._error = ""

    def _copied_at(self) -> str:
        """A moment before which everything that was written is copied; "" if nothing is known.

        Litestream is asked to bring there what is in the log now, and says when that is done. The
        time of its last copy would not do: just after its start it has not looked at the log yet.
        """
        asked = _now()
        try:
            done = _control("POST", "/sync", {**self._sync, "timeout": SYNC_SECONDS})
            return asked if done["replicated_txid"] >= done["txid"] > 0 else ""
        except (OSError, ValueError, LookupError, http.client.HTTPException):
            return ""

    def _say(self, *, copied_at: str = "", error: str = "") -> None:
        before = self.said
        copied_at = copied_at or before.copied_at
        self.said = Said(before.process, before.started_at, copied_at, error)
        with contextlib.suppress(OSError):  # a full disk must not end the copying
            say(self.file, self.said)
        line = error or f"{self.file.name} is copied to {self.destination.address}"
        gist = line.split(" (")[0]  # a retry may fail at another step
        if gist != self._told and (error or copied_at):
            self._told = gist
            self.tell(line)


class _Control(http.client.HTTPConnection):
    """HTTP over the socket of the Litestream in the working directory."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(2 * SYNC_SECONDS)
        self.sock.connect(CONTROL)


def _control(method: str, path: str, question: dict[str, Any] | None = None) -> Any:
    connection = _Control("localhost")
    try:
        connection.request(method, path, json.dumps(question) if question else None)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _now() -> str:
    return datetime.now(UTC).isoformat()
