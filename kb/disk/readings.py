"""How the files of a folder are to be searched, remembered for as long as they do not change.

ripgrep reads most files as everybody does. Those few that it sees other lines in (old encodings,
UTF-16, lone returns) are decoded for it, and to find them takes twice as long as a search. So a
process keeps what it found out about a file until a look at its inode (2 us) shows another size,
place or time. Of a file that was written within the last two seconds nothing is kept: it may change
again within the same tick of the clock that its times are taken from.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kb.disk.inside import is_hidden_from_tools, read_beneath
from kb.disk.ripgrep import MAXIMUM_BYTES, odd_files

# FAT counts modification times in twos of seconds, which is the coarsest.
SETTLED_NS = 2_000_000_000

FILES_REMEMBERED = 50_000  # of all folders together; some 300 bytes each

# Read here rather than by ripgrep, which has no way to be told of a few files but a long command.
_FEW_FILES = 200
_FEW_BYTES = 8 * 1024 * 1024  # 10 ms

# As `odd_files` has it: a return at the end of the text ends its last line, whoever reads it.
_ODD_BYTES = re.compile(rb"\r(?!\n|\Z)|\0")


class Reading(Enum):
    AS_IT_IS = "by ripgrep itself"
    DECODED = "as the text that it holds in its encoding"
    NOT_AT_ALL = "it is binary, hidden from tools, or too large"


@dataclass(slots=True)
class FileRead:
    """How a file is to be searched for as long as it stays in one state."""

    state: tuple[int, int, int, int]  # inode, bytes, modified and changed in ns since 1970
    reading: Reading | None = None  # None until it is known
    is_private_key: bool | None = None  # likewise


_remembered: dict[str, dict[str, FileRead]] = {}  # by folder, the last that changed at the end
_lock = threading.Lock()


def look_at(root: Path, listed: list[str]) -> tuple[dict[str, FileRead], list[str]]:
    """What is remembered of the listed files by path, sorted, and those of which nothing is."""
    with _lock:
        before = _remembered.get(str(root), {})
    is_same = len(listed) == len(before) and all(map(before.__contains__, listed))
    files_read, unknown, start = {}, [], f"{root}/"
    for path in before if is_same else sorted(listed):
        try:
            status = os.lstat(start + path)
        except OSError:
            continue  # gone since it was listed
        state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        file_read = before.get(path)
        if file_read is None or file_read.state != state or file_read.reading is None:
            file_read = FileRead(state)
            is_searched = stat.S_ISREG(status.st_mode) and status.st_size <= MAXIMUM_BYTES
            if is_searched and not is_hidden_from_tools(path):
                unknown.append(path)
            else:
                file_read.reading = Reading.NOT_AT_ALL
        files_read[path] = file_read
    return files_read, unknown


def remember(root: Path, files: dict[str, FileRead], looked_at: int) -> None:
    """Keep what was learned since `look_at` was called at this time (ns since 1970)."""
    with _lock:
        if _remembered.get(str(root)) == files:
            return
    before = looked_at - SETTLED_NS
    kept = {
        path: file
        for path, file in files.items()
        if file.reading is not None and max(file.state[2:]) < before
    }
    with _lock:
        _remembered.pop(str(root), None)
        _remembered[str(root)] = kept
        count = sum(map(len, _remembered.values()))
        while count > FILES_REMEMBERED:
            count -= len(_remembered.pop(next(iter(_remembered))))


def find_odd(
    root: Path, files: dict[str, FileRead], paths: list[str], pruned: Iterable[str], seconds: float
) -> tuple[set[str], bool]:
    """Which of some files ripgrep sees other lines in than whoever decodes them, binary ones too.

    Where they are many, their whole folder is searched without what is `pruned`. The second value
    says whether all were looked at within so many seconds.
    """
    if len(paths) > _FEW_FILES or sum(files[path].state[1] for path in paths) > _FEW_BYTES:
        odd, complete = odd_files(root, tuple(pruned), seconds)
        return set(odd).intersection(paths), complete
    deadline = time.monotonic() + seconds
    searched: set[str] = set()
    for path in paths:
        if time.monotonic() > deadline:
            return searched, False
        try:
            data, _ = read_beneath(root, path.split("/"), MAXIMUM_BYTES)
        except OSError:
            continue
        if is_odd(data):
            searched.add(path)
    return searched, True


def is_odd(data: bytes) -> bool:
    """Whether bytes are not UTF-8, contain a NUL, or end lines with a lone return."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return _ODD_BYTES.search(data) is not None
