"""Files on other machines that are searched as if they lay here: docs/decisions/0038-shards.md.

Each worker of a Dask scheduler holds a `ShardReader`, which keeps the files of its machine open. A
search does the same with them as with files here, step by step (`kb/search/run.py`), all at
once. What they propose is merged here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import glob
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kb.errors import FileError, KbError, UsageError
from kb.ingest.engine import connect, require_extra
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

copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))


# A file that a worker has: its key, the same for all copies of it wherever they lie, its path, and
# its `current_model`.
Listed = tuple[str, str, Row | None]
SECONDS = 5.0  # that a question waits for the workers in all
LOOK_SECONDS = 2.0  # how often it is asked which workers there are, and what lies there
START_SECONDS = 10.0  # for a new worker to open its files
REACH_SECONDS = 1.0  # to reach a worker that the scheduler knows
REST_SECONDS = 10.0  # that a worker which did not answer is asked only where no other can be
T = TypeVar("T")


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
        paths = sorted(path for each in self._patterns for path in _matching(each))
        _attached.paths = [*{os.path.realpath(path): path for path in reversed(paths)}.values()][
            ::-1
        ]
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
                listed.append((key, str(database.path), model))
        return listed, [*_attached.unavailable, *problems]


def _matching(pattern: str) -> list[Path]:
    paths = map(Path, glob.glob(str(Path(pattern).expanduser()), recursive=True))
    files = [file for path in paths for file in (path.glob("*.db") if path.is_dir() else [path])]
    return [file.absolute() for file in files if file.is_file()]


class Shards:
    """The files that the workers of a scheduler have; what lies where is looked up now and then.

    Arguments and errors are those of `Workspace.use_shards`.
    """

    def __init__(self, address: str, patterns: Sequence[str], seconds: float = SECONDS) -> None:
        require_extra()
        self.seconds = seconds
        self._address = address
        self._patterns = patterns
        self._client: Any = None
        # Actors by the address of their worker, with what keeps them.
        self._readers: dict[str, tuple[Any, Any]] = {}
        self._holders: dict[str, dict[str, str]] = {}  # by key of a file: paths by worker
        self._models: dict[str, Row | None] = {}
        self._last: dict[tuple[str, str], str] = {}  # the key that was last at a host and a path
        self._resting: dict[str, float] = {}  # until when, by worker
        self._problems: list[str] = []
        self._ended = threading.Event()
        self._looking = threading.Lock()
        self._look()
        threading.Thread(target=self._look_again, name="shards", daemon=True).start()

    def files(self, model: ModelInUse, names: Names) -> list[SearchedFile]:
        """The files as a search sees them.

        Args:
            model: of the file here, with whose embedders questions get their vectors.
        """
        now = time.monotonic()
        count: dict[str, int] = {}
        files: list[SearchedFile] = []
        for key, paths in sorted(self._holders.items(), key=lambda item: min(item[1].values())):
            # Each is asked once; a worker that others can stand in for is spared.
            workers = sorted(
                paths, key=lambda path: (self._resting.get(path, 0) > now, count.get(path, 0), path)
            )
            count[workers[0]] = count.get(workers[0], 0) + 1
            label = f"The shard {Path(paths[workers[0]]).name}"
            elsewhere = model.elsewhere(self._models[key])
            files.append(Shard(self, key, workers, elsewhere, names, label))
        return files

    @property
    def unavailable(self) -> list[str]:
        """What is to be told of files that no worker has now, one sentence each."""
        holders = self._holders
        lost = sorted({path for (_, path), key in self._last.items() if key not in holders})
        return [
            *self._problems,
            *(f"The shard {Path(path).name} was left out: no worker has it now." for path in lost),
        ]

    def ask(self, worker: str, *arguments: Any) -> Callable[[float], Any]:
        """Ask a worker; what waits so many seconds for its answer. Raises as `ShardReader.ask`."""
        future = self._readers[worker][0].ask(*arguments)
        return lambda seconds: future.result(timeout=seconds)

    def rest(self, worker: str) -> None:
        """Ask a worker last for a while."""
        self._resting[worker] = time.monotonic() + REST_SECONDS

    def lose(self, worker: str) -> None:
        """Ask a worker no more, until it is found again."""
        self._readers.pop(worker, None)
        left = {
            key: {other: path for other, path in paths.items() if other != worker}
            for key, paths in self._holders.items()
        }
        self._holders = {key: paths for key, paths in left.items() if paths}

    def close(self) -> None:
        self._ended.set()
        client, self._client = self._client, None
        if client is not None:
            self._readers = {}
            with contextlib.suppress(OSError, TimeoutError):
                client.close(timeout=START_SECONDS)

    def _look_again(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with self._looking, contextlib.suppress(UsageError):  # refused at the start, if at all
                self._look()

    def _look(self) -> None:
        try:
            if self._client is None or self._client.status != "running":
                self._readers = {}
                self._client = connect(self._address, direct=True)
                self._client.rpc.timeout = REACH_SECONDS
            workers = [*self._client.nthreads(callback_timeout=START_SECONDS)]
        except (OSError, TimeoutError) as error:
            self._holders = {}
            self._problems = [f"Searched without shards: {error}."]
            return
        problems: list[str] = []
        self._start(workers, problems)
        waiting = {worker: reader.shards() for worker, (reader, _) in [*self._readers.items()]}
        holders: dict[str, dict[str, str]] = {}
        for worker, future in waiting.items():
            try:
                listed, of_worker = future.result(timeout=self.seconds)
            except Exception as error:  # noqa: BLE001 - any that its Python has
                self.rest(worker)
                problems.append(f"The worker {worker} was left out: {_reason(error)}.")
                continue
            problems += of_worker
            for key, path, model in listed:
                holders.setdefault(key, {})[worker] = path
                self._models[key] = model
                self._last[urlsplit(worker).hostname or "", path] = key
        if not self._last:
            problems.append(f"No worker at {self._address} has a file that --shards names.")
        self._holders, self._problems = holders, problems

    def _start(self, workers: Sequence[str], problems: list[str]) -> None:
        for worker in self._readers.keys() - {*workers}:
            self._readers.pop(worker, None)
        made = ShardReader, self._patterns, VERSION
        new = {
            worker: self._client.submit(*made, actor=True, workers=[worker], pure=False)
            for worker in workers
            if worker not in self._readers
        }
        for worker, future in new.items():
            try:
                with self._client.as_current():
                    reader = future.result(timeout=START_SECONDS)
            except Exception as error:  # noqa: BLE001 - any that its Python has
                problems.append(f"The worker {worker} was left out: {_reason(error)}.")
                continue
            reader._future = None  # for which a call would wait where its worker is lost
            self._readers[worker] = reader, future


class Shard(SearchedFile):
    """A file on one or several workers, for one search.

    Args:
        workers: that have it, the one to ask first.
    """

    is_far = True

    def __init__(
        self,
        shards: Shards,
        key: str,
        workers: Sequence[str],
        model: ModelInUse,
        names: Names,
        label: str,
    ) -> None:
        super().__init__(model, names, label)
        self.read = self._begin_reading
        self._shards = shards
        self._key = key
        self._workers = [*workers]
        self._left = shards.seconds
        self._version: int | None = None  # of the file, from a read's first step on
        self._is_second = False  # a read was lost once

    def _begin_reading(self) -> AbstractContextManager[Any]:
        self._version = None
        return contextlib.nullcontext(self)

    def begin(
        self, step: Callable[..., T], _: object, read: Any, *arguments: Any
    ) -> Callable[[], T]:
        def start() -> Callable[[float], Any]:
            ask = self._shards.ask
            given = self._key, self._version, self._left, self.names, step, arguments
            return ask(self._workers[0], *given)

        def finish() -> T:
            wait = begun
            while True:
                began = time.monotonic()
                try:
                    if wait is None:
                        wait = start()
                    # Where others have the file, one that is slow gets half of the time.
                    self._version, result = wait(self._left / min(len(self._workers), 2))
                except LostReadError:
                    self._lose_read("it changed while it was searched")
                except KbError as error:
                    if not isinstance(error, FileError):
                        raise
                    self._next_worker(error)
                except TimeoutError:
                    self._shards.rest(self._workers[0])
                    took = f"it did not answer within {self._shards.seconds:g} s"
                    self._next_worker(FileError(took))
                except Exception:  # noqa: BLE001 - Dask's own, of many kinds: the worker is gone
                    self._shards.lose(self._workers[0])
                    self._next_worker(FileError(f"its worker {self._workers[0]} is lost"))
                else:
                    answer: T = result
                    return answer
                finally:
                    self._left = max(self._left - (time.monotonic() - began), 0.0)
                wait = None

        begun: Callable[[float], Any] | None = None
        with contextlib.suppress(Exception):  # it is said by `finish`
            begun = start()
        return finish

    def _next_worker(self, error: FileError) -> None:
        """Go on to the next worker.

        Raises:
            FileError: there is none.
            LostReadError: within a read the search begins again, since another copy may be of
                another time, and without this file others are judged in another way.
        """
        if len(self._workers) > 1:
            del self._workers[0]
        elif self._version is None:
            raise error
        if self._version is not None:
            self._lose_read(error.message)

    def _lose_read(self, why: str) -> None:
        if self._is_second:
            raise FileError(why)
        self._is_second = True
        raise LostReadError(why)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return error.message if isinstance(error, KbError) else repr(error)
