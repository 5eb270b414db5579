"""Reading a file that anybody may change, replace or remove meanwhile."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from kb.disk.open_databases import opened
from kb.errors import SourceError
from kb.text.file_names import storable

MAXIMUM_DOCUMENT = 20_000_000  # bytes of a file that is text
MOST_SHOWN = 200  # characters of a path in a message


class FileState(NamedTuple):
    """A file's state, told without reading it; a file that was changed has another."""

    size: int | None = None  # bytes; None: nothing is known
    modified_ns: int | None = None  # None: it was too young for its time to be trusted
    changed_ns: int | None = None  # None: it was fetched or unpacked for as long as it is read
    inode: int | None = None


UNKNOWN_STATE = FileState()


def read_bytes(location: Path, maximum: int) -> bytes:
    """All bytes of a regular file, from one moment if that can be had.

    Raises OSError if it cannot be read, is not a regular file, or exceeds `maximum` bytes.
    """
    data, steady = _read_once(location, maximum)
    # A file that keeps changing is taken as it is now; by its date the next sync reads it again.
    return data if steady else _read_once(location, maximum)[0]


def is_there(location: Path) -> bool:
    """Whether there is any file at this place, even an unreachable one."""
    try:
        location.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True  # reading it will say why not
    return not location.is_dir()


def too_large(size: int, maximum: int) -> str:
    """Why a file of `size` bytes is not read."""
    return f"{size / 1e6:.1f} MB is more than the limit of {maximum / 1e6:.0f} MB"


def reason(error: OSError | ValueError) -> str:
    """What went wrong, for the middle of a message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def system_error(error: OSError) -> SourceError:
    """An unexpected refusal by the system, such as of a name that is too long."""
    if not isinstance(error.filename, str | bytes):
        return SourceError(f"the system refused something: {reason(error)}")
    path = storable(os.fsdecode(error.filename))
    shown = path if len(path) <= MOST_SHOWN else f"{path[:MOST_SHOWN]}..."
    return SourceError(f"cannot use {shown}: {reason(error)}", path=shown)


def _read_once(location: Path, maximum: int) -> tuple[bytes, bool]:
    # The entry may be another one since the walk: wait for no fifo's writer, follow no new link.
    with opened(location, follow=False) as stream:
        before = os.fstat(stream.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise OSError("not a regular file")
        data = stream.read(maximum + 1)
        if len(data) > maximum:
            raise OSError(too_large(max(before.st_size, len(data)), maximum))
        after = os.fstat(stream.fileno())
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return data, same and len(data) == after.st_size
