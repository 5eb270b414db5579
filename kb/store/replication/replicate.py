"""Litestream beside a file: started, watched, started again, ended; and how far the copy is, which
that process notes for everybody."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kb.disk.holders import holders
from kb.disk.system import connect_to_socket
from kb.disk.write import replace_file
from kb.errors import BusyError, FileError, SourceError, UsageError
from kb.results.findings import HINT, SOUND, Finding
from kb.store.database import Database
from kb.store.replication.litestream import (
    CONFIGURATION,
    Destination,
    configuration,
    explain,
    newest,
    parse_destination,
    start,
)
from kb.store.write_ahead_log import CONTROL, is_replicated, litestream_folder

STATE = "kb-state.json"
LOCK = "kb.lock"
LATE_SECONDS = 10  # without a copy, after which it is said that the copy is behind
LOOK_SECONDS = 0.5
SYNC_SECONDS = 5  # for one question whether everything is copied
MAX_PAUSE_SECONDS = 30.0  # between two starts of a Litestream that ends; at first one second
END_SECONDS = 20.0  # for its last copy; it takes 10 itself
LOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class State:
    file: Path
    address: str  # "" where Litestream was not started by kb
    is_running: bool
    process: int = 0
    copied_at: datetime | None = None  # all that was written until then is at the destination
    error: str = ""

    @property
    def seconds(self) -> float | None:
        """How long ago everything was at the destination; None: never, as far as we know."""
        if self.copied_at is None:
            return None
        return max((datetime.now(UTC) - self.copied_at).total_seconds(), 0.0)

    @property
    def is_behind(self) -> bool:
        """Whether the copy lacks what was written a while ago, or may lack it."""
        late = self.seconds is None or self.seconds > LATE_SECONDS
        return not self.is_running or bool(self.address and (self.error or late))

    def sentence(self) -> str:
        """For people."""
        name, seconds = self.file.name, self.seconds
        if not self.address:
            runs = "runs" if self.is_running else "does not run now"
            return f"{name} is replicated by a Litestream that kb did not start, which {runs}"
        clock = f"{self.copied_at.astimezone():%Y-%m-%d %H:%M:%S}" if self.copied_at else ""
        if not self.is_running:
            as_of = f"is as of {clock}" if clock else "may lack anything"
            return f"{name} is not being copied now; the copy at {self.address} {as_of}"
        if self.error:
            return f"{name} is not being copied{f' since {clock}' * bool(clock)}: {self.error}"
        if seconds is None:
            return f"{name} is about to be copied to {self.address} (process {self.process})"
        return (
            f"{name} is copied to {self.address}: all that was written until {seconds:.1f} s ago "
            f"is there (process {self.process})"
        )

    def remedy(self) -> str:
        """What to do where the copy is behind."""
        if not self.is_behind:
            return ""
        if self.is_running and self.address:
            return "it tries on by itself; `kb replicate --stop` gives it up"
        start = f"`kb replicate {self.address}`" if self.address else "start it"
        return f"{start} goes on, `kb replicate --stop` ends it"

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        seconds, copied_at = self.seconds, self.copied_at
        fields = {
            "destination": self.address,
            "running": self.is_running,
            "process": self.process or None,
            "copiedAt": copied_at and copied_at.isoformat(timespec="milliseconds"),
            "behindSeconds": None if seconds is None else round(seconds, 1),
            "error": self.error or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def replication_state(file: Path) -> State | None:
    """How a file is replicated; None if it is not."""
    if not is_replicated(file):
        return None
    if not (address := stored_address(file)):
        return State(file, "", any(holder.program == "litestream" for holder in holders(file)))
    is_running = False
    try:
        with lock_of(file).acquire(timeout=0):
            pass
    except Timeout:
        is_running = True
    except OSError:  # a folder that this user may not write to: nothing is known
        pass
    note = _read(file, STATE)
    try:
        copied_at = datetime.fromisoformat(note.get("copied_at", ""))
    except (ValueError, TypeError):
        copied_at = None
    now = {key: note[key] for key in ("process", "error") if is_running and key in note}
    return State(file, address, is_running, copied_at=copied_at, **now)


def stored_address(file: Path) -> str:
    """Where kb was told to copy a file; "" if it was not."""
    try:
        return str(_read(file, CONFIGURATION)["x-kb"]["address"])
    except (LookupError, TypeError):
        return ""


def lock_of(file: Path) -> FileLock:
    """The lock of the one process that keeps a file's copy."""
    return FileLock(litestream_folder(file) / LOCK)


def finding(file: Path) -> Finding | None:
    state = replication_state(file)
    if state is None:
        return None
    how = HINT if state.is_behind else SOUND
    return Finding("replication", how, state.sentence(), state.remedy())


def _read(file: Path, name: str) -> dict[str, Any]:
    """The JSON file of this name in Litestream's folder; {} if it cannot be read."""
    try:
        content = json.loads((litestream_folder(file) / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def replicate(
    file: Path, address: str, tell: Callable[[str], None], *, goes_on: bool, once: bool
) -> None:
    """Copy a file to an address from now on, until a signal ends this process.

    Args:
        tell: called with what a person would want to know.
        goes_on: the copy that is at the destination already is one of this file.
        once: end as soon as everything is there.

    Raises:
        SourceError: the destination cannot be used.
        UsageError: it holds a copy that may be another file's, or the address is malformed.
        BusyError: another process replicates the file.
    """
    destination = parse_destination(address)
    file = file.absolute()  # Litestream is run in another folder
    with Database(file, create=False):  # whatever is wrong with it is said before
        pass
    folder = litestream_folder(file)
    is_new, is_first = stored_address(file) != destination.address, not folder.exists()
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = lock_of(file).acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        state = replication_state(file)
        raise BusyError(
            f"{file} is being replicated to {state.address if state else 'a destination'} already"
            f"{f' (process {state.process})' if state and state.process else ''}: "
            "`kb replicate --stop` ends that",
            path=str(file),
        ) from error
    with lock:
        try:
            end_left_over(file)
            if is_new:
                latest = newest(destination)
                if latest is not None and not goes_on:
                    raise UsageError(
                        f"{destination.address} holds a copy already, as of "
                        f"{latest.time:%Y-%m-%d %H:%M:%S} UTC: name another place, or go on with "
                        "it by --continue if it is one of this file"
                    )
                for place in folder.iterdir():  # of another destination or an earlier file here
                    if place.is_dir():
                        shutil.rmtree(place)
            replace_file(folder / CONFIGURATION, configuration(file, destination), is_private=True)
            _Watch(file, destination, tell, once=once).run(is_first=is_new)
        except BaseException:
            state = replication_state(file)
            if is_first and not (state and state.copied_at):
                _forget(file)
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
    try:
        lock_of(file).acquire(timeout=END_SECONDS + LOCK_SECONDS).lock.release()
    except Timeout as error:
        raise BusyError(f"process {state.process} does not end: end it, then try again") from error
    end_left_over(file)
    last = replication_state(file)
    _forget(file)
    return last is not None and state.is_running and not last.error


def end_left_over(file: Path) -> None:
    """End a Litestream whose watcher was killed: two of them would write one history."""
    with contextlib.chdir(litestream_folder(file)):
        if not (process := _control("GET", "/info").get("pid")):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while _control("GET", "/info"):
            if time.monotonic() > deadline:
                raise BusyError(
                    f"process {process} still replicates {file}: end it, then try again"
                )
            time.sleep(0.05)


def _forget(file: Path) -> None:
    """Make the file ordinary and complete again."""
    shutil.rmtree(litestream_folder(file), ignore_errors=True)
    with contextlib.suppress(FileError), Database(file, create=False) as database:
        database.merge_log()


class _Watch:
    def __init__(
        self, file: Path, destination: Destination, tell: Callable[[str], None], *, once: bool
    ) -> None:
        self.file = file
        self.destination = destination
        self.tell = tell
        self.once = once
        self._copied_at = ""
        self._error = ""  # that Litestream has not got over
        self._last_line = ""
        self._last_gist = ""

    def run(self, *, is_first: bool) -> None:
        """Run until an exception ends it, as of Ctrl-C; SourceError if the first start fails."""
        self._note()
        pause = 1.0
        while True:
            copied = self._run_litestream()
            if copied and self.once:
                return
            why = explain(self._last_line, self.destination)
            if not copied and (is_first or self.once):
                raise SourceError(why)
            is_first = False
            why = why if self._last_line else "Litestream ended unasked"
            self._note(error=f"{why}; it is started again")
            pause = 1.0 if copied else min(2 * pause, MAX_PAUSE_SECONDS)
            time.sleep(pause)

    def _run_litestream(self) -> bool:
        """Run Litestream until it ends; whether it copied anything."""
        self._error = self._last_line = ""
        copied = False
        with contextlib.chdir(litestream_folder(self.file)):
            Path(CONTROL).unlink(missing_ok=True)
            # In a session of its own, so that Ctrl-C ends it once, by us, after its last copy.
            words = ["replicate", "-config", CONFIGURATION]
            process, reader = start(self.destination, words, self._hear, in_own_session=True)
            try:
                while process.poll() is None and not (copied and self.once):
                    if self._is_copied():
                        copied, self._error = True, ""
                    if copied or self._error:
                        self._note(error=self._error)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0 if self.once and copied else LOOK_SECONDS)
            finally:
                self._end(process)
            reader.join(LOOK_SECONDS)
        return copied

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is not None:
            return
        requested_at = datetime.now(UTC).isoformat()
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode == 0 and not self._error:
            self._copied_at = requested_at
            self._note()

    def _hear(self, line: str) -> None:
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

    def _is_copied(self) -> bool:
        """Send the log; whether all of it arrived. The last copy's time says nothing at a start."""
        requested_at, path = datetime.now(UTC).isoformat(), os.path.realpath(self.file)
        done = _control("POST", "/sync", {"path": path, "wait": True, "timeout": SYNC_SECONDS})
        if not done.get("txid") or done.get("replicated_txid", 0) < done["txid"]:
            return False
        self._copied_at = requested_at
        return True

    def _note(self, error: str = "") -> None:
        note = {"process": os.getpid(), "copied_at": self._copied_at, "error": error}
        with contextlib.suppress(OSError):  # a full disk must not end the copying
            replace_file(litestream_folder(self.file) / STATE, json.dumps(note), is_private=True)
        line = error or f"{self.file.name} is copied to {self.destination.address}"
        gist = line.split(" (")[0]  # a retry may fail at another step
        if gist != self._last_gist and (error or self._copied_at):
            self._last_gist = gist
            self.tell(line)


def _control(method: str, path: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """What Litestream in the working directory answers over its socket; {} if it does not."""
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        contextlib.closing(http.client.HTTPConnection("localhost")) as connection,
    ):
        connection.sock = connect_to_socket(CONTROL, 2 * SYNC_SECONDS)
        connection.request(method, path, json.dumps(question) if question else None)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    return {}
