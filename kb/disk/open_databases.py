"""Files that this process has open as databases, which nothing else in it may open.

POSIX drops every lock that a process holds on a file as soon as the process closes any descriptor
of it. SQLite takes care of its own descriptors, but a server that once reads its own file in
another way has no lock left, without a sign of it. So whatever reads a file whose name comes from
outside (a client, a source, a configuration) opens it here, and our own looks at a database go
through SQLite. A file is recognised by device and inode: links and the case of letters do not
matter.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kb.disk.system import open_to_read
from kb.errors import FileError, ReplacedFileError

COMPANIONS = ("", "-wal", "-shm", "-journal")

Identity = tuple[int, int]  # device, inode

_lock = threading.Lock()
_claims: list[Claim] = []
_kept: list[int] = []  # descriptors that cannot be closed before a database is


class OpenDatabaseError(OSError):
    """The file is a knowledge base that this process has open, or its log or journal."""

    def __init__(self) -> None:
        super().__init__("this is a knowledge base in use, a binary file that only kb reads")


class Claim:
    """A file, if it exists, that one `Database` has for itself; FileError if another has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names = [os.path.realpath(path) + suffix for suffix in COMPANIONS]
        with _lock:
            self.identity = self.identity_now()
            self._require_only_one()
            _claims.append(self)

    def _require_only_one(self) -> None:
        if any(self._names == other._names or self.identity in other for other in _claims):
            raise FileError(
                f"{self.path} is open in this process already: use that one, or close it first",
                path=str(self.path),
            )

    def identity_now(self) -> Identity | None:
        """What tells the file at the path from every other one; None when there is none.

        A file whose folder may not be entered any more counts as the one that was open.
        """
        try:
            status = os.stat(self.path)
            return status.st_dev, status.st_ino
        except FileNotFoundError:
            return None
        except OSError:
            return getattr(self, "identity", None)

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self.identity_now() == self.identity

    def require_in_place(self) -> None:
        """Raise ReplacedFileError if the file was removed or replaced: writes would be lost."""
        if (now := self.identity_now()) == self.identity:
            return
        if now is None:
            raise ReplacedFileError(
                f"{self.path} was removed while it was open: put it or a copy of it back, or make "
                "it anew with `kb add FOLDER`; then start the server again",
                path=str(self.path),
            )
        raise ReplacedFileError(
            f"{self.path} was replaced by another file while it was open: start the server again "
            "to use that one",
            path=str(self.path),
        )

    def take_up(self) -> bool:
        """Take up the file that is now at the path; whether it is another one."""
        before, self.identity = self.identity, self.identity_now() or self.identity
        return self.identity != before

    def release(self) -> None:
        """Give up the claim: all connections to the file are closed."""
        with _lock:
            if self in _claims:
                _claims.remove(self)
            for descriptor in [*_kept]:
                if not _is_claimed(os.fstat(descriptor)):
                    _kept.remove(descriptor)
                    os.close(descriptor)

    def __contains__(self, identity: object) -> bool:
        if identity is None:
            return False
        if identity == self.identity:  # wherever it has been moved to
            return True
        for name in self._names:
            with contextlib.suppress(OSError):
                if identity == _identity(os.stat(name)):
                    return True
        return False


def is_open_database(path: Path) -> bool:
    """Whether this process has the file open as a database, or its log or journal."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    with _lock:
        return _is_claimed(status)


def require_no_database(path: Path) -> None:
    """Raise FileError if a path leads to a knowledge base in use, or to its log or journal."""
    if is_open_database(path):
        raise FileError(
            f"{path} is the knowledge base in use, or its log: name another file", path=str(path)
        )


@contextlib.contextmanager
def opened(
    path: str | Path, *, follow: bool = True, folder: int | None = None
) -> Iterator[BinaryIO]:
    """A file to be read, of which no lock is lost; arguments as of `open_to_read`.

    Raises:
        OpenDatabaseError: this process has it open as a database.
        OSError: it cannot be opened.
    """
    checked = None
    if _claims:
        status = os.stat(path, dir_fd=folder, follow_symlinks=follow)
        _require_unclaimed(status)
        checked = _identity(status)
    descriptor = open_to_read(path, follow=follow, folder=folder)
    try:
        status = os.fstat(descriptor)
        if _identity(status) != checked:  # another file has taken its place since
            _require_unclaimed(status)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        with _lock:
            if _is_claimed(os.fstat(descriptor)):  # it has become a database in use meanwhile
                _kept.append(descriptor)
            else:
                os.close(descriptor)


def _require_unclaimed(status: os.stat_result) -> None:
    with _lock:
        is_refused = _is_claimed(status)
    if is_refused:
        raise OpenDatabaseError


def _is_claimed(status: os.stat_result) -> bool:
    identity = _identity(status)
    return any(identity in claim for claim in _claims)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
