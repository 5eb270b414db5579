"""How a file is found, made, checked and opened."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import apsw

from kb.disk.holders import companion, sqlite_name
from kb.disk.write import create_like
from kb.errors import DamagedFileError, FileError
from kb.store.mark import Mark
from kb.store.schema import empty_file
from kb.text.file_names import storable

BUSY_MILLISECONDS = 20_000
LONGEST_VALUE = 1 << 27  # bytes of a row; the largest text that is stored has a third of it
MAPPED = 1 << 27  # bytes of a file; SQLite takes 64 kB less (decision 22)
HEADER_BYTES = 100
# Bytes 18 and 19, the versions that are needed to write and to read: of a file with a log.
HEADER_OF_WAL, HEADER_WITHOUT_LOG = b"\2\2", b"\1\1"
LOOK_SECONDS = 0.004  # between two looks whether another process has let go of a lock
PROJECT_FOLDER = ".kb"
# The first file in a project's folder: what git leaves out; config.json there belongs to git.
IGNORED = """\
# The knowledge base is made anew by `kb sync`; other files here are kept.
*.db
*.db-*
*.db.*
"""
SQLITE_HEADER = b"SQLite format 3\0"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # at the end: a name stands before it
LOOKS = 2
_LARGEST_PAGE = 65536  # which two bytes cannot hold


def connect(
    path: Path, in_memory: bool = False, read_only: bool = False, is_own: bool = True
) -> apsw.Connection:
    """A connection that can do everything the statements ask for.

    Args:
        in_memory: there is no file; `path` means nothing.
        is_own: this user made or confirmed the file.
    """
    if in_memory:
        connection = apsw.Connection(":memory:")
    elif read_only:
        connection = _connect_to_read(path)
    else:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(sqlite_name(path), flags)
    wait_for_others(connection)
    # Nothing that the file defines runs: we have no triggers, and views of plain functions.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, True)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.pragma("foreign_keys", True)
    if is_own:
        connection.pragma("mmap_size", MAPPED)
    else:  # as https://sqlite.org/security.html has it
        connection.pragma("cell_size_check", True)
    # find_spec, since importing sqlite_vec imports numpy (0.2 s).
    spec = find_spec("sqlite_vec")
    if spec is None or spec.origin is None:  # there is none for Windows on ARM
        from kb.store.vectors import IN_PLACE_OF_EXTENSION

        for name, function in IN_PLACE_OF_EXTENSION.items():
            connection.create_scalar_function(name, function)
        return connection
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(spec.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)
    return connection


def wait_for_others(connection: apsw.Connection, milliseconds: int | None = None) -> None:
    """Set how long to wait for another process's lock, looking every few milliseconds.

    SQLite itself soon looks only ten times a second. Beside a process that writes one transaction
    after another it then finds the lock free once in many seconds.
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


def leave_log(connection: apsw.Connection) -> None:
    """Switch back to the DELETE journal before the last connection to a file is closed.

    Refused while another process has the file open: its own close does it.
    """
    with contextlib.suppress(apsw.Error):
        connection.set_busy_timeout(0)
        connection.pragma("query_only", False)
        if connection.pragma("journal_mode") == "wal":
            connection.pragma("journal_mode", "delete")


def read_header(connection: apsw.Connection) -> bytes:
    """A file's first bytes, by SQLite: a descriptor of our own would cost the process its locks."""
    return connection.read("main", 0, 0, HEADER_BYTES)[1]


def _connect_to_read(path: Path) -> apsw.Connection:
    """Open a file that cannot be written.

    In WAL mode it is read as immutable, for want of a -shm; but a log means that somebody writes.
    """
    flags, uri = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, path.absolute().as_uri()
    connection = apsw.Connection(f"{uri}?mode=ro", flags)
    log = companion(path, "-wal")
    is_quiet = not (log.exists() and log.stat().st_size) and not companion(path, "-shm").exists()
    if is_quiet and read_header(connection)[18:20] == HEADER_OF_WAL:
        connection.close()
        connection = apsw.Connection(f"{uri}?immutable=1", flags)
    return connection


def folders(path: Path) -> tuple[str, str]:
    """The folder to which sources in a file are relative, and the project whose file it is."""
    folder = path.absolute().parent.resolve()
    if folder.name == PROJECT_FOLDER:
        project = storable(folder.parent)
        return project, project
    return storable(folder), ""


def find_or_make(path: Path, mark: Mark, *, create: bool) -> bool:
    """Look at the file before SQLite does, and make it if allowed; whether it is read-only.

    Raises:
        FileError: missing without `create`, or unreadable.
    """
    folder = path.parent
    if place := mark.leads_out():
        raise FileError(
            f"{path} is a link to {place}, outside of the project, and may have come with it: if "
            "you made it, `kb trust` says so",
            path=str(path),
        )
    if path.is_dir():
        raise FileError(f"{path} is a folder: name a file, such as {path}/kb.db")
    if path.exists():
        if not path.is_file():  # opening a pipe waits for whoever writes to it
            raise FileError(f"{path} is not a regular file: name another file with --db")
        effective = os.access in os.supports_effective_ids
        if not os.access(path, os.R_OK, effective_ids=effective):
            raise FileError(f"cannot read {path}: permission denied", path=str(path))
        return not all(
            os.access(place, os.W_OK, effective_ids=effective) for place in (path, folder)
        )
    if not create:
        raise FileError(
            f"there is no knowledge base at {path}: "
            "make one with `kb add FOLDER`, or name another file with --db",
            path=str(path),
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == PROJECT_FOLDER:
            with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
                file.write(IGNORED)
    except OSError as error:
        raise FileError(f"cannot write to the folder {folder}: {error.strerror}") from error
    make_file(path)
    mark.confirm_file()
    return False


def make_file(path: Path, model: Path | None = None) -> None:
    """Put a whole new file in its place at once, unless another process is first.

    So nobody ever sees a file without its tables; an empty one was cut off. Whoever may not read
    the `model` may not read the new file.
    """
    path = companion(path, "")  # where a link leads that nothing is at the end of
    new = path.with_name(f"{path.name}.new-{os.getpid()}-{threading.get_ident()}")
    try:
        if model is not None:
            create_like(new, model)
        new.write_bytes(empty_file())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                new.replace(path)
    except OSError as error:
        raise FileError(f"cannot make {path}: {error.strerror}", path=str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def require_whole(connection: apsw.Connection, path: Path) -> None:
    """Refuse what does not begin as a database, and a file that was cut off.

    SQLite takes a file of one byte for empty, and notices a missing end only when it gets there.
    While there is a log or a journal the file alone says nothing.

    Raises:
        DamagedFileError: it is not a database, or only a part of one.
        FileError: the log or journal beside it belongs to another file.
    """
    _require_own_log(connection, path)
    fault, beside = "", [companion(path, suffix) for suffix in ("-wal", "-journal")]
    # Another process may have written to it between one look and the next.
    for _ in range(LOOKS):
        if any(map(_size, beside)) or not (fault := _fault(connection, path)):
            return
    raise DamagedFileError(f"{path} {fault}")


def _require_own_log(connection: apsw.Connection, path: Path) -> None:
    """Refuse a log or journal that others have laid beside the file.

    SQLite applies any log it finds. But the header of a file with a log says so from before the log
    is made until after it is gone, and counts each such change. A journal that names another file
    belongs to a transaction over several, which kb never has; SQLite deletes the file it names.
    """
    log, journal = companion(path, "-wal"), companion(path, "-journal")
    header = read_header(connection)
    has_foreign = header[18:20] == HEADER_WITHOUT_LOG and _size(log)
    if has_foreign and read_header(connection) == header:  # nobody has changed it meanwhile
        raise FileError(
            f"{log} is the log of another file or of an earlier one, since {path} says that it has "
            "none: move it away, then try again",
            path=str(log),
        )
    end = b""
    if _size(journal) > len(JOURNAL_MAGIC):
        with journal.open("rb") as stream:  # nobody locks a journal
            stream.seek(-len(JOURNAL_MAGIC), os.SEEK_END)
            end = stream.read()
    if end == JOURNAL_MAGIC:
        raise FileError(
            f"{journal} names another file, which no journal of kb does: move it away, then try "
            "again",
            path=str(journal),
        )


def _fault(connection: apsw.Connection, path: Path) -> str:
    """What is wrong with the file itself; "" for nothing."""
    header, size = read_header(connection), path.stat().st_size
    if not size:
        return (
            "is empty, which no knowledge base ever is: restore a copy, or delete it to begin anew"
        )
    if not header.startswith(SQLITE_HEADER):
        return "is damaged or no SQLite file: name another file with --db, or restore a copy"
    page_size, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    is_told = header[24:28] == header[92:96]  # else some old SQLite wrote it last
    expected = (_LARGEST_PAGE if page_size == 1 else page_size) * pages
    if not is_told or size >= expected:
        return ""
    return (
        f"is damaged: {expected - size} bytes are missing at its end. Restore a copy, or delete it "
        "and sync again"
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
