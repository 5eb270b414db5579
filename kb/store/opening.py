"""How a connection to a file is opened, and what SQLite is told on it."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import apsw

from kb.disk.holders import companion
from kb.errors import FileError

BUSY_MILLISECONDS = 20_000
MAPPED = 1 << 27  # bytes of a file; SQLite takes 64 kB less (decision 22)
LOOK_SECONDS = 0.004  # between two looks whether another process has let go of a lock


def connect(path: Path, *, in_memory: bool = False, read_only: bool = False) -> apsw.Connection:
    """A connection that can do everything the statements ask for.

    Args:
        path: the file; of no meaning in memory.
        in_memory: a file that goes with the process.
        read_only: never to write.
    """
    if in_memory:
        connection = apsw.Connection(":memory:")
    elif read_only:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        uri = path.absolute().as_uri()
        connection = apsw.Connection(f"{uri}?{_read_only_mode(path)}", flags)
    else:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(sqlite_name(path), flags)
    wait_for_others(connection)
    connection.pragma("foreign_keys", True)
    connection.pragma("mmap_size", MAPPED)
    _load_vector_extension(connection)
    return connection


def sqlite_name(path: Path) -> str:
    """A file's name for SQLite, which takes UTF-8, or an address with any bytes in it."""
    path = path.absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.as_uri()
    return str(path)


def wait_for_others(connection: apsw.Connection, milliseconds: int | None = None) -> None:
    """For how long a lock of another process is waited for, looking again and again.

    SQLite's own way looks ten times a second after a while. Beside a process that writes one
    transaction after another it finds the lock free once in many seconds.
    """
    patience = BUSY_MILLISECONDS if milliseconds is None else milliseconds
    until = 0.0

    def wait(times: int) -> bool:
        nonlocal until
        now = time.monotonic()
        if not times:
            until = now + patience / 1000
        if now >= until:
            return False
        time.sleep(min(LOOK_SECONDS, until - now))
        return True

    connection.set_busy_handler(wait if patience else None)


def use_log(connection: apsw.Connection) -> None:
    """Switch to WAL. SQLite refuses at once, without waiting, while another process reads."""
    deadline = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            break
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.pragma("synchronous", 1)  # NORMAL: safe in WAL mode
    # What is deleted is overwritten: no cost that could be measured (400 documents replaced in
    # 15.4 s with it, 15.8 s without), and a secret that was taken out of a document is gone.
    connection.pragma("secure_delete", True)


def _read_only_mode(path: Path) -> str:
    """How to open a file that cannot be written.

    A copy whose header says WAL needs a -shm beside it, which cannot be made there, so it is
    read as immutable. That ignores other processes' writes, so it is done for no other file:
    where there is a log, somebody writes, and the log's index exists already.
    """
    log = companion(path, "-wal")
    with path.open("rb") as file:
        header = file.read(20)
    header_says_wal = header[18:20] == b"\2\2"
    if header_says_wal and not (log.exists() and log.stat().st_size):
        return "immutable=1" if not companion(path, "-shm").exists() else "mode=ro"
    return "mode=ro"


def _load_vector_extension(connection: apsw.Connection) -> None:
    # find_spec, since importing sqlite_vec imports numpy (0.2 s).
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise FileError("the package sqlite-vec is not installed: pip install sqlite-vec")
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(spec.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)
