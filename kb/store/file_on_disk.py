"""The file as the disk has it: made whole, and looked at before SQLite is trusted with it."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from kb.disk.holders import companion
from kb.errors import DamagedFileError, FileError
from kb.store.schema import empty_file
from kb.text.file_names import storable

PROJECT_FOLDER = ".kb"
# The first file in a project's folder: what git leaves out; config.json there belongs to git.
IGNORED = """\
# The knowledge base is made anew by `kb sync`; other files here are kept.
*.db
*.db-*
*.db.*
"""
SQLITE_HEADER = b"SQLite format 3\0"
LOOKS = 2
_HEADER_BYTES = 100
_LARGEST_PAGE = 65536  # which two bytes cannot hold


def folders(path: Path) -> tuple[str, str]:
    """The folder to which sources in a file are relative, and the project whose file it is."""
    folder = path.absolute().parent.resolve()
    if folder.name == PROJECT_FOLDER:
        project = storable(folder.parent)
        return project, project
    return storable(folder), ""


def is_part_of(path: Path, other: Path) -> bool:
    """Whether a file is the one at a path, or SQLite's log, index of the log or journal of it."""
    places = [path.absolute()]
    if path.is_symlink():
        places.append(companion(path, ""))
    return any(
        other.name.startswith(one.name)
        and other.name[len(one.name) :] in ("", "-wal", "-shm", "-journal")
        and other.parent.resolve() == one.parent.resolve()
        for one in places
    )


def find_or_make(path: Path, *, create: bool) -> bool:
    """Look at the file before SQLite does, and make it where it may be made.

    Returns:
        whether it can only be read.

    Raises:
        FileError: missing without `create`, or unreadable.
        DamagedFileError: no database.
    """
    folder = path.parent
    if path.is_dir():
        raise FileError(f"{path} is a folder: name a file, such as {path}/kb.db")
    if path.exists():
        if not path.is_file():  # opening a pipe waits for whoever writes to it
            raise FileError(f"{path} is no regular file: name another file with --db")
        _require_database(path)
        effective = os.access in os.supports_effective_ids
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
            with (
                contextlib.suppress(FileExistsError),
                (folder / ".gitignore").open("x") as file,
            ):
                file.write(IGNORED)
    except OSError as error:
        raise FileError(f"cannot write to the folder {folder}: {error.strerror}") from error
    make_file(path)
    return False


def make_file(path: Path) -> None:
    """Put a whole new file in its place at once, unless another process is first.

    So nobody ever sees one without its tables, and one that is empty was cut off.
    """
    path = companion(path, "")  # where a link leads that nothing is at the end of
    new = path.with_name(f"{path.name}.new-{os.getpid()}-{threading.get_ident()}")
    try:
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


def _require_database(path: Path) -> None:
    """Refuse what does not begin as a database; SQLite takes a file of one byte for empty."""
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    if _has_journal(path):
        return  # after a crash in its first transaction the journal makes the file empty again
    if not header:
        raise DamagedFileError(
            f"{path} is empty, which no knowledge base ever is: restore a copy, or "
            "delete it to begin anew"
        )
    if header != SQLITE_HEADER:
        raise DamagedFileError(
            f"{path} is damaged or no SQLite file: name another file with --db, or restore a copy"
        )


def require_whole(path: Path) -> None:
    """Refuse a file that was cut off; SQLite would see it only where it comes to the end.

    While there is a log or a journal the file alone says nothing. Its header is read by us: SQLite
    reads the schema first, part of which may be what is missing.
    """
    # Another process may have written to it between one look and the next.
    for _ in range(LOOKS):
        if _has_journal(path) or not (missing := _missing_bytes(path)):
            return
    raise DamagedFileError(
        f"{path} is damaged: {missing} bytes are missing at its end. Restore a copy, or delete it "
        "and sync again"
    )


def _missing_bytes(path: Path) -> int:
    """By how much the file is shorter than it says itself, 0 where that cannot be told."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    page_size, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    is_told = header[24:28] == header[92:96]  # else some old SQLite wrote it last
    expected = (_LARGEST_PAGE if page_size == 1 else page_size) * pages
    return max(0, expected - size) if is_told else 0


def _has_journal(path: Path) -> bool:
    return any(
        log.exists() and log.stat().st_size
        for log in (companion(path, "-wal"), companion(path, "-journal"))
    )
