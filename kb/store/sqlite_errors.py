"""SQLite's errors as ours, with the file's name and what to do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import apsw

from kb.disk.holders import companion, holders
from kb.errors import BusyError, DamagedFileError, FileError


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of damaged text, into kb's own."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
        raise BusyError(
            f"{path} is being written by {_writer(path)}: try again when it is done", path=str(path)
        ) from error
    # FTS5 is always there, but a new connection asks the file for it.
    except (apsw.NotADBError, apsw.CorruptError, apsw.NoFTS5Error) as error:
        raise DamagedFileError(
            f"{path} is damaged or no SQLite file ({error}): restore a copy, or delete "
            "it and sync again"
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedFileError(
            f"{path} is damaged: a text in it cannot be read ({error}). `kb doctor` looks "
            "at all of it; restore a copy, or delete the file and sync again"
        ) from error
    except apsw.SQLError as error:
        # Every statement is tested with the schema: a table, or the width of a vector, differs.
        raise DamagedFileError(
            f"{path} is damaged, or another program has changed it ({error}): `kb doctor` "
            "says what is wrong, `kb doctor --fix` makes anew what it can; else restore a copy"
        ) from error
    except (apsw.InterruptError, apsw.ConnectionClosedError) as error:
        raise FileError(f"{path} was closed while it was read") from error
    except apsw.FullError as error:
        raise FileError(f"the disk is full while writing {path}") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.PermissionsError) as e:
        raise FileError(f"cannot use {path}: {e}{_hint(path)}", path=str(path)) from e


def _hint(path: Path) -> str:
    """What it takes to read a file with a log that no other process has open."""
    with contextlib.suppress(OSError):
        if companion(path, "-wal").stat().st_size:
            return (
                f". {path.name}-wal beside it holds writes that can only be read where there is "
                "room and may be written: make room, or copy both files to another folder"
            )
    return ""


def _writer(path: Path) -> str:
    """The processes that have the file open, where the system tells."""
    numbers = [str(holder.process) for holder in holders(path)]
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    return f"another process ({' or '.join(numbers)})" if numbers else "another process"
