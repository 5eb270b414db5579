"""The files of a worker's machine, which a search elsewhere reads: see `kb/library/shards.py`."""

from __future__ import annotations

import asyncio
import copyreg
import glob
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kb.errors import FileError, UsageError
from kb.model_in_use import ModelInUse
from kb.search.files import LostReadError, SearchedFile
from kb.settings import VERSION
from kb.store.collections import Names, file_mark
from kb.store.connection import Connection, Row
from kb.store.database import AttachedFiles, Database
from kb.store.vectors import current_model

INTERRUPT_SECONDS = 0.02

# A process has a file open once, whoever asks; and one thread reads, so that a file is read by one
# connection, whose version tells whether it has changed.
_attached = AttachedFiles()
_thread = ThreadPoolExecutor(1, "shards")

T = TypeVar("T")

copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))


class Listed(NamedTuple):
    """A file that a worker has."""

    key: str  # the same for all copies of a file, wherever they lie
    path: str
    model: Row | None  # its `current_model`


class ShardReader:
    """The files of a worker's machine that match some patterns, open and warm; a Dask actor.

    Args:
        patterns: of files there, or folders whose `*.db` are meant.
        version: of the kb that asks: what is sent and answered is one version's.

    Raises:
        UsageError: another version is installed here.
    """

    def __init__(self, patterns: Sequence[str], version: str) -> None:
        if version != VERSION:
            raise UsageError(f"kb {VERSION} is installed there, {version} here")
        self._patterns = patterns
        self._shards: dict[str, Database] = {}
        self._reading: tuple[object, Connection] | None = None  # which call, and what by

    async def shards(self) -> tuple[list[Listed], list[str]]:
        """The files that can be read now, and why others cannot."""
        return await asyncio.get_running_loop().run_in_executor(_thread, self._look)

    async def ask(
        self,
        key: str,
        version: int | None,
        seconds: float,
        names: Names,
        step: Callable[..., T],
        arguments: Sequence[Any],
    ) -> tuple[int, T]:
        """A step on one file, and the file's version; ended after so many seconds.

        Args:
            version: that the file must still have.

        Raises:
            FileError: it is not here, cannot be read, or takes too long.
            LostReadError: it has changed.
        """
        call = object()
        until = time.monotonic() + seconds

        def answer() -> tuple[int, T]:
            if time.monotonic() > until:
                raise FileError("nobody waits any more")
            database = self._shards.get(key)
            if database is None or not database.is_in_place():
                self._look()
                database = self._shards.get(key)
            if database is None:
                raise FileError("the file is not there any more")
            with database.read() as connection:
                now = connection.version()
                if version not in (None, now):
                    raise LostReadError("it has changed")
                self._reading = call, connection
                try:
                    return now, step(
                        SearchedFile(ModelInUse(database), names), connection, *arguments
                    )
                finally:
                    self._reading = None

        work = asyncio.get_running_loop().run_in_executor(_thread, answer)
        await asyncio.wait([work], timeout=seconds)
        while not work.done():
            if (reading := self._reading) is not None and reading[0] is call:
                reading[1].apsw.interrupt()
            await asyncio.sleep(INTERRUPT_SECONDS)
        return await work

    def _look(self) -> tuple[list[Listed], list[str]]:
        _attached.paths = sorted({path for each in self._patterns for path in _matching(each)})
        self._shards = {}
        listed = []
        problems = []
        for database in _attached.databases():
            try:
                with database.read() as connection:
                    key, model = file_mark(connection), current_model(connection)
            except FileError as error:
                problems.append(f"Left out: {error.message.rstrip('.')}.")
                continue
            if key and key not in self._shards:
                self._shards[key] = database
                listed.append(Listed(key, str(database.path), model))
        return listed, [*_attached.unavailable, *problems]


def _matching(pattern: str) -> list[Path]:
    paths = map(Path, glob.glob(str(Path(pattern).expanduser()), recursive=True))
    files = [file for path in paths for file in (path.glob("*.db") if path.is_dir() else [path])]
    return [file.absolute() for file in files if file.is_file()]
