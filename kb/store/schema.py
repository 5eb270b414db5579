"""The tables of a file: made when it is new, brought to this version when it is older."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

import apsw

from kb import PACKAGE
from kb.errors import DamagedFileError, FileError, NewerFileError
from kb.store.opening import sqlite_name

APPLICATION_ID = 0x6B62646F
SCHEMA_VERSION = 6
PAGE_SIZE = 4096  # 8192 searches no faster, and a new file would be twice as large
MIGRATIONS = PACKAGE / "migrations"  # NNNN.sql: to version NNNN


def prepare(connection: apsw.Connection, path: Path, *, read_only: bool) -> None:
    """See to it that the file has the tables of this version.

    Raises:
        DamagedFileError: another program's file.
        NewerFileError: written by a later version of kb.
        FileError: it cannot be brought to this version.
    """
    if _version(connection) == (0, 0) and not read_only:
        _shape(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have made the schema while we waited for the lock.
            if _version(connection) == (0, 0):
                if connection.execute("SELECT count(*) FROM sqlite_schema").get:
                    raise DamagedFileError(
                        f"{path} is another program's database: name another file"
                    )
                connection.execute(_resource("schema.sql"))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    application, version = _version(connection)
    if application != APPLICATION_ID:
        raise DamagedFileError(f"{path} is not a kb file: name another file with --db")
    if version < 1:
        raise DamagedFileError(
            f"{path} is damaged: it says that its version is {version}, and no kb wrote such a "
            "file. Restore a copy, or delete it and sync again"
        )
    if version > SCHEMA_VERSION:
        raise NewerFileError(
            f"{path} was written by a newer kb (file version {version}, this kb reads "
            f"up to {SCHEMA_VERSION}): upgrade kb"
        )
    if version < SCHEMA_VERSION:
        _migrate(connection, path, version, read_only=read_only)


@cache
def empty_file() -> bytes:
    """A file with the tables and nothing in them."""
    connection = apsw.Connection(":memory:")
    try:
        _shape(connection)
        connection.execute(_resource("schema.sql"))
        return connection.serialize("main")
    finally:
        connection.close()


def _shape(connection: apsw.Connection) -> None:
    """What a file is made with, before its first table. Pages without use can be given back."""
    connection.pragma("page_size", PAGE_SIZE)
    connection.pragma("auto_vacuum", 2)  # INCREMENTAL


def _migrate(connection: apsw.Connection, path: Path, version: int, *, read_only: bool) -> None:
    if read_only:
        raise FileError(
            f"{path} has the older version {version} and cannot be written: "
            "copy it to a writable folder and open it there once"
        )
    backup = path.with_name(f"{path.name}.version-{version}")
    connection.pragma("foreign_keys", False)  # so that a migration can rebuild a table
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while we waited for the lock.
        current = _version(connection)[1]
        if current < SCHEMA_VERSION:
            _back_up(path, backup)
        while (current := _version(connection)[1]) < SCHEMA_VERSION:
            script = MIGRATIONS / f"{current + 1:04}.sql"
            connection.execute(script.read_text(encoding="utf-8"))
            connection.pragma("user_version", current + 1)
        if broken := connection.pragma("foreign_key_check"):
            raise apsw.ConstraintError(f"broken reference: {broken}")
        connection.execute("COMMIT")
    except (apsw.Error, OSError) as error:
        raise FileError(
            f"{path} could not be brought from version {version} to {SCHEMA_VERSION}: "
            f"{error}. It was left as it is; use the kb that wrote it, and report this"
        ) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    connection.pragma("foreign_keys", True)
    backup.unlink(missing_ok=True)
    # Room that the older version took goes. Where another process has the file open, or there is no
    # space for a copy, it stays: the next changes use it.
    with contextlib.suppress(apsw.BusyError, apsw.LockedError, apsw.FullError):
        _shape(connection)
        connection.execute("VACUUM")


def _back_up(path: Path, destination: Path) -> None:
    """Copy the file as it is; the lock that a migration holds lets readers through."""
    destination.unlink(missing_ok=True)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    reader = apsw.Connection(sqlite_name(path), flags)
    try:
        reader.execute("VACUUM INTO ?", (sqlite_name(destination),))
    finally:
        reader.close()


def _version(connection: apsw.Connection) -> tuple[int, int]:
    return connection.pragma("application_id"), connection.pragma("user_version")


def _resource(*names: str) -> str:
    """A packaged SQL file; in a checkout `schema.sql` lies beside the package."""
    packaged = PACKAGE.joinpath(*names)
    if not packaged.is_file():
        packaged = PACKAGE.parent.joinpath(*names)
    return packaged.read_text(encoding="utf-8")
