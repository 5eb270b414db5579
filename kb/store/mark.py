"""What this user has made or confirmed of a file, noted outside of it.

A file that came with a clone is its author's: nobody here decided where its collections may read.
The notes lie in the user's state folder, which nobody who passes a file on can write: a text file
for each knowledge base, a fact a line, only ever appended to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from kb.settings import FILE_NAME, user_state


class Mark:
    """What is noted of the file at a path.

    Sources are confirmed for a path, whatever file is there: one that is pulled again and again is
    asked about once. Where the state folder cannot be written, this object alone remembers.

    Args:
        path: None for a file in memory or a copy of our own, which need no mark.

    Attributes:
        is_own: this user made or confirmed the very file that was at the path, not only one there.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._facts: set[tuple[str, str]] = set()
        self._inode = ""  # of the file that was made or confirmed last
        self.is_own = path is None
        if path is not None:
            self._real = _name(path)
            digest = hashlib.sha256(os.fsencode(self._real)).hexdigest()
            self._place = user_state() / "files" / f"{digest[:24]}.jsonl"
            self._read()
            self.is_own = bool(self._inode) and self._inode == _inode(path)

    def confirm_file(self) -> None:
        """Note that the file at the path, or what a link there leads to, is this user's."""
        if self._path is not None:
            link = self.leads_out()
            inode = _inode(self._path)
            self._add(("inode", inode), *([("link", link)] if link else []))
            self.is_own = bool(inode)

    def confirm_source(self, source: str, *, is_private: bool = False) -> None:
        """Let collections read a source; with `is_private` also private addresses that it names."""
        self._add(("source", source), *([("private", source)] if is_private else []))

    def leads_out(self) -> str:
        """Where a file leads by a link that may have come with its project; "" if nowhere."""
        if self._path is None or self.is_own or not _is_of_project(self._path):
            return ""
        real = os.path.realpath(self._path)
        is_inside = real.startswith(os.path.join(_project(self._path), ""))
        return "" if is_inside or ("link", real) in self._facts else real

    def allows(self, source: str, *, is_private: bool = False) -> bool:
        """Whether collections of the file may read a source, or private addresses it names."""
        if self._path is None:
            return True
        self._read()  # another process may have confirmed it
        return ("private" if is_private else "source", source) in self._facts

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._place.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # cut off where the disk was full
                    kind, value = json.loads(line)
                    self._note(kind, value)

    def _note(self, kind: str, value: str) -> None:
        self._facts.add((kind, value))
        if kind == "inode":
            self._inode = value

    def _add(self, *facts: tuple[str, str]) -> None:
        new = [
            fact
            for fact in facts
            if (fact[1] != self._inode if fact[0] == "inode" else fact not in self._facts)
        ]
        for fact in new:
            self._note(*fact)
        if not new or self._path is None:
            return
        with contextlib.suppress(OSError):
            self._place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(os.open(self._place, flags, 0o600), "a", encoding="utf-8") as stream:
                if not stream.tell():  # for people who look
                    new.insert(0, ("path", self._real))
                stream.write("".join(json.dumps(fact) + "\n" for fact in new))


def _name(path: Path) -> str:
    """A file's place, with links followed, but not those of its project."""
    if _is_of_project(path):
        return os.path.join(_project(path), *path.absolute().parts[-2:])
    return os.path.realpath(path)


def _is_of_project(path: Path) -> bool:
    return path.absolute().parent.name == FILE_NAME.parts[0]


def _project(path: Path) -> str:
    return os.path.realpath(path.absolute().parent.parent)


def _inode(path: Path) -> str:
    # Not the device, whose number may change when the machine starts anew.
    try:
        return str(path.stat().st_ino)
    except OSError:
        return ""
