"""Which other processes have a knowledge base file open, and which keep its log from being merged.

Read from /proc, so on Linux alone, and of the processes that this user may look at.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kb.disk.system import PROCESSES

# A reader in WAL mode locks one of these bytes of the -shm file as long as its transaction lasts.
READ_MARKS = range(123, 128)
COMMAND_CHARACTERS = 80


class Holder(NamedTuple):
    process: int
    command: str

    @property
    def program(self) -> str:
        """The program, without arguments that may be private."""
        return os.path.basename(self.command.split(" ")[0])


def companion(file: Path, suffix: str) -> Path:
    """SQLite's log ("-wal"), the log's index ("-shm") or journal of a file.

    SQLite follows links: they lie beside the real file and have its name.
    """
    return Path(f"{os.path.realpath(file)}{suffix}")


def sqlite_name(path: Path) -> str:
    """A file's name for SQLite: UTF-8, or an address that can hold any bytes."""
    path = path.absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.as_uri()
    return str(path)


def readers_of_log(path: Path) -> list[Holder]:
    """Other processes inside a read transaction of the file."""
    try:
        shared = companion(path, "-shm").stat()
        locks = (PROCESSES / "locks").read_text().splitlines()
    except OSError:
        return []
    processes = set()
    for line in locks:
        # 1: POSIX  ADVISORY  READ 4711 08:01:131 124 124
        parts = [part for part in line.split() if part != "->"]
        if len(parts) < 8 or parts[1] != "POSIX" or not parts[4].isdecimal():
            continue
        is_file = parts[5].rpartition(":")[2] == str(shared.st_ino)
        if is_file and parts[6].isdecimal() and int(parts[6]) in READ_MARKS:
            processes.add(int(parts[4]))
    return _named(processes)


def holders(path: Path) -> list[Holder]:
    """Other processes that have the file or its log open."""
    files = set()
    for name in (path, companion(path, "-wal"), companion(path, "-shm")):
        with contextlib.suppress(OSError):
            state = os.stat(name)
            files.add((state.st_dev, state.st_ino))
    processes = set()
    for entry in os.listdir(PROCESSES) if PROCESSES.is_dir() else []:
        # It may have ended meanwhile, or belong to somebody else.
        with contextlib.suppress(OSError):
            if entry.isdecimal():
                with os.scandir(PROCESSES / entry / "fd") as descriptors:
                    states = (descriptor.stat() for descriptor in descriptors)
                    if any((state.st_dev, state.st_ino) in files for state in states):
                        processes.add(int(entry))
    return _named(processes)


def _named(processes: Iterable[int]) -> list[Holder]:
    return [
        Holder(process, _command(process))
        for process in sorted(processes)
        if process not in (0, os.getpid())
    ]


def _command(process: int) -> str:
    try:
        words = (PROCESSES / str(process) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    text = b" ".join(words).decode(errors="replace").strip()
    return text if len(text) <= COMMAND_CHARACTERS else f"{text[:COMMAND_CHARACTERS]}..."
