"""Whether the file that is open is still the one at its path.

What is written to a file that nobody finds any more would be lost without a word.
"""

from __future__ import annotations

import os
from pathlib import Path

from kb.errors import ReplacedFileError


class SameFile:
    """The file that is at a path when this is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None
        self._opened = self._identity()

    def is_in_place(self) -> bool:
        """Whether it is still there."""
        return self._identity() == self._opened

    def take_up(self) -> bool:
        """Go on with the file that is at the path now; whether that is another one."""
        now = self._identity()
        if now is None or now == self._opened:
            return False
        self._opened = now
        return True

    def require(self) -> None:
        """Refuse to go on with a file that is no longer where it was.

        Raises:
            ReplacedFileError: it was removed, or another one is in its place.
        """
        if (now := self._identity()) == self._opened:
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

    def _identity(self) -> tuple[int, int] | None:
        """What tells a file from another one; None when there is none."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError:  # a folder above that may not be entered any more: nothing is known
            return self._opened
        return status.st_dev, status.st_ino
