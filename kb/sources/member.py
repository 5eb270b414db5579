"""Writing what a stranger's bundle or repository holds into a folder of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from kb.errors import SourceError

__all__ = ["MOST_BYTES", "Target"]

MOST_MEMBERS = 100_000
MOST_BYTES = 4_000_000_000
# Text seldom shrinks to less than a twentieth; small bundles of much white space may.
MOST_RATIO = 200
RATIO_FROM = 50_000_000
PIECE = 1 << 20


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; none at the end."""


@dataclass(slots=True)
class Target:
    """A folder that members are written into, and how much more of them is believed."""

    folder: Path
    source: str  # as people know it
    packed_bytes: int = MOST_BYTES  # of what the members come out of
    member_count: int = 0
    byte_count: int = 0

    def write(self, name: str, content: Readable, modified_ns: int) -> None:
        """Write one member.

        Raises:
            SourceError: its name leads outside, or there is more than can be believed.
        """
        path = self._place(name)
        with path.open("wb") as file:
            while piece := content.read(PIECE):
                self._count_bytes(len(piece))
                file.write(piece)
        os.utime(path, ns=(modified_ns, modified_ns))

    def write_hole(self, name: str, size: int, modified_ns: int) -> None:
        """Write a member of this size without its content, for one that is too large to be read.

        Raises:
            SourceError: as `write`.
        """
        path = self._place(name)
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, ns=(modified_ns, modified_ns))

    def _place(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
            raise SourceError(
                f"{self.source} is refused: its member {name!r} leads outside of it",
                path=self.source,
            )
        self.count_member()
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def count_member(self) -> None:
        """Count a member, also one that is left out."""
        self.member_count += 1
        if self.member_count > MOST_MEMBERS:
            raise self._bomb(f"holds more than {MOST_MEMBERS:,} members")

    def _count_bytes(self, count: int) -> None:
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
