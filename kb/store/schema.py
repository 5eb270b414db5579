"""The tables of a file: made when it is new, brought to this version when it is older."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from kb.disk.holders import sqlite_name
from kb.disk.write import create_like
from kb.errors import DamagedFileError, FileError, NewerFileError
from kb.settings import PACKAGE
from kb.store.connection import Connection

APPLICATION_ID = 0x6B62646F
SCHEMA_VERSION = 7
# What `_fingerprint` makes of the tables, indexes and views of each version.
FINGERPRINTS = {
    1: "66e299a5f4edcdcb7c9a6828c9451809",
    2: "d2d49549ab8bdc52c66ed3dc22474fa5",
    3: "224b379b48f6eff27007475eb0924371",
    4: "90d2081ef98b48507fcb958e5ef23def",
    5: "91090a97fc7dee9754d23f5ae130b617",
    6: "dd96f44dab36bb3336ab1822dadd0701",
    7: "0005c4cff072c9bde44ea9e5f5e0e8f1",
}
MOST_OBJECTS, MOST_CHARACTERS = 100, 10_000  # that are read: twice what there are, and as long
MOST_COLLECTIONS = 1_000  # of a stranger's file: a search takes some time for each
PAGE_SIZE = 4096  # 8192 searches no faster, and a new file would be twice as large
MIGRATIONS = PACKAGE / "migrations"  # NNNN.sql: to version NNNN


# In SQL: a literal or name in quotes, a comment, a word or a sign.
_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\w+|[^\w\s]""")
# What `ANALYZE` and Litestream add.
OF_OTHERS = (
    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
    "CREATE TABLE _litestream_lock (id INTEGER)",
)


def prepare(connection: Connection, path: Path, *, read_only: bool, is_own: bool) -> None:
    """Make sure that the file has the tables of this version.

    Args:
        is_own: this user made or confirmed the file.

    Raises:
        DamagedFileError: another program's file, or one of others that is not as kb makes it.
        NewerFileError: written by a later version of kb.
        FileError: it cannot be brought to this version.
    """
    if not is_own:
        connection.deadline.set_long(False)
        with connection.deadline:
            _require_known_tables(connection.apsw, path)
        connection.deadline.set_long(True)
    with connection.deadline:
        _prepare(connection.apsw, path, read_only=read_only)


def _prepare(connection: apsw.Connection, path: Path, *, read_only: bool) -> None:
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
                connection.execute(_schema())
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


def _require_known_tables(connection: apsw.Connection, path: Path) -> None:
    """Refuse, unread, tables, indexes and views that kb does not make: a view may never end."""
    objects: Any = connection.execute(
        "SELECT name, substr(sql, 1, ?) FROM sqlite_schema WHERE sql IS NOT NULL AND sql NOT IN "
        "(SELECT value FROM json_each(?)) ORDER BY name LIMIT ?",
        (MOST_CHARACTERS, json.dumps(OF_OTHERS), MOST_OBJECTS),
    ).fetchall()
    application, version = _version(connection)
    expected = FINGERPRINTS.get(version)
    if application != APPLICATION_ID or expected is None:
        return  # `_prepare` says more of a file that is none of ours
    if _fingerprint(objects) != expected:
        why = _difference(objects, version)
    elif connection.execute(
        "SELECT count(*) > ?1 FROM (SELECT 1 FROM collections LIMIT ?1 + 1)", (MOST_COLLECTIONS,)
    ).get:
        why = f"it has more than {MOST_COLLECTIONS:,} collections"
    else:
        return
    raise DamagedFileError(
        f"{path} is not used: it was made elsewhere, and {why}. If it is yours and meant to be so, "
        "`kb trust` says that; else restore a copy",
        path=str(path),
    )


def _fingerprint(objects: Sequence[tuple[str, str]]) -> str:
    """A hash of definitions that ignores comments and line breaks."""
    words = [
        " ".join(word for word in _WORD.findall(sql) if not word.startswith("--"))
        for _, sql in objects
    ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def _difference(objects: Sequence[tuple[str, str]], version: int) -> str:
    if version == SCHEMA_VERSION:
        with contextlib.closing(apsw.Connection(":memory:")) as fresh:
            fresh.execute(_schema())
            ours = dict(fresh.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        theirs = dict(objects)
        for name in sorted(ours.keys() | theirs.keys()):
            definitions = (_fingerprint([(name, sql.get(name, ""))]) for sql in (ours, theirs))
            if len({*definitions}) > 1:
                return f'"{name}" in it is not what kb makes'
    return "its tables are not those that kb makes"


@cache
def empty_file() -> bytes:
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        _shape(connection)
        connection.execute(_schema())
        return connection.serialize("main")


def _shape(connection: apsw.Connection) -> None:
    """Set what a file must have before its first table; free pages can then be given back."""
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
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, False)  # and edit a definition
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while we waited for the lock.
        if _version(connection)[1] < SCHEMA_VERSION:
            _back_up(path, backup)
        while (current := _version(connection)[1]) < SCHEMA_VERSION:
            connection.execute((MIGRATIONS / f"{current + 1:04}.sql").read_text(encoding="utf-8"))
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
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, True)
    backup.unlink(missing_ok=True)
    # Give back the old version's room; if a reader or a full disk forbids it, later changes use it.
    with contextlib.suppress(apsw.BusyError, apsw.LockedError, apsw.FullError):
        _shape(connection)
        connection.execute("VACUUM")


def _back_up(path: Path, destination: Path) -> None:
    """Copy the file as it is; the lock that a migration holds lets readers through."""
    destination.unlink(missing_ok=True)
    create_like(destination, path)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with contextlib.closing(apsw.Connection(sqlite_name(path), flags)) as reader:
        reader.execute("VACUUM INTO ?", (sqlite_name(destination),))


def _version(connection: apsw.Connection) -> tuple[int, int]:
    return connection.pragma("application_id"), connection.pragma("user_version")


def _schema() -> str:
    """`schema.sql` of the package; in a checkout it lies beside it."""
    packaged = PACKAGE / "schema.sql"
    file = packaged if packaged.is_file() else PACKAGE.parent / "schema.sql"
    return file.read_text(encoding="utf-8")
