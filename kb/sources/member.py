"""Writes a stranger's bundle or repository into a folder of our own."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from kb.disk.read import reason
from kb.disk.system import require_possible_name
from kb.errors import SourceError
from kb.text.file_names import storable

MOST_MEMBERS = 100_000
MOST_BYTES = 4_000_000_000
MOST_RATIO = 200  # text seldom shrinks below a twentieth; small bundles of much white space may
RATIO_FROM = 50_000_000
PIECE = 1 << 20
# How a system refuses a name: too long, or a file's where a folder must be.
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; none at the end."""


@dataclass(slots=True)
class Target:
    """A folder that members are written into, and how much more is believed."""

    folder: Path
    source: str  # as shown to people
    packed_bytes: int = MOST_BYTES  # size of what is unpacked
    member_count: int = 0
    byte_count: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)  # members not written, and why
    _names: set[str] = field(default_factory=set)

    def write(self, name: str, content: Readable, modified_ns: int) -> None:
        """Write a member. Raises SourceError if it leads outside or is implausibly large."""
        path = self._make_path(name)
        with path.open("wb") as file:
            while piece := content.read(PIECE):
                self.count_bytes(len(piece))
                file.write(piece)
        os.utime(path, ns=(modified_ns, modified_ns))

    def write_hole(self, name: str, size: int, modified_ns: int) -> None:
        """Write a member of this size without its content, which is too large to read."""
        path = self._make_path(name)
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, ns=(modified_ns, modified_ns))

    def place(self, name: str) -> Path:
        """Where a member of this name belongs. Raises SourceError if it leads outside."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or "\\" in name or re.match(r"/|[A-Za-z]:", name):
            raise SourceError(
                f"{self.source} is refused: its member {name!r} leads outside of it",
                path=self.source,
            )
        return self.folder.joinpath(*parts)

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Report a name that the system cannot have as a problem of this member alone."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NAME_ERRORS:
                raise
            shown = name if len(name) <= 100 else f"{name[:100]}..."
            self.problems.append((storable(shown), f"cannot be unpacked: {reason(error)}"))

    def _make_path(self, name: str) -> Path:
        path = self.place(name)
        self.count_member()
        if name not in self._names and path.is_file():
            raise OSError(errno.EEXIST, "another member has this name, but for the case", name)
        self._names.add(name)
        require_possible_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def count_member(self) -> None:
        """Count a member, even one that is left out."""
        self.member_count += 1
        if self.member_count > MOST_MEMBERS:
            raise self._bomb(f"holds more than {MOST_MEMBERS:,} members")

    def count_bytes(self, count: int) -> None:
        self.byte_count += count
        most = min(MOST_BYTES, max(RATIO_FROM, MOST_RATIO * self.packed_bytes))
        if self.byte_count > most:
            raise self._bomb(f"unpacks to more than {most / 1e6:,.0f} MB")

    def _bomb(self, why: str) -> SourceError:
        return SourceError(
            f"{self.source} is refused: it {why}; unpack it yourself and add the folder if it is "
            "what it says",
            path=self.source,
        )
