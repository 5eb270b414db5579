"""Several files searched as one: large ones side by side, and one that fails leaves the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from kb.errors import FileError, KbError
from kb.model_in_use import ModelInUse
from kb.models.embedder import available_cores
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.names import Names

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

# Bytes of the files together, from which on they are read side by side. Below it threads wait for
# one another: docs/decisions/0022-search-at-size.md.
SIDE_BY_SIDE = 500_000_000


class SearchedFile:
    """An open file as a search sees it.

    Attributes:
        names: of the collections and documents in it.
        label: what people call it.
    """

    __slots__ = ("label", "model", "names")

    def __init__(self, model: ModelInUse, names: Names, label: str = "The file") -> None:
        self.model = model
        self.names = names
        self.label = label

    @property
    def database(self) -> Database:
        return self.model.database


class Together:
    """The files of one search. What cannot be read is left out and told, while others answer.

    Attributes:
        files: those that answer.
        lost: what to tell the reader of the others.
    """

    def __init__(self, files: Sequence[SearchedFile]) -> None:
        self.files = list(files)
        self.lost: list[str] = []
        self._connections: dict[SearchedFile, Connection] = {}

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """A read of every file, for `each`."""
        with contextlib.ExitStack() as reads:
            for file in [*self.files]:
                try:
                    self._connections[file] = reads.enter_context(file.database.read())
                except FileError as error:
                    self.leave_out(file, error)
            yield

    def each(self, work: Callable[[SearchedFile, Connection], T]) -> dict[SearchedFile, T]:
        """What some work on each file gives, done one after the other; inside `read`.

        Raises:
            KbError: what keeps the only file, or all of them, from answering.
        """
        return self._collected({file: partial(self._run, work, file) for file in self.files})

    def each_at_once(self, work: Callable[[SearchedFile, Connection], T]) -> dict[SearchedFile, T]:
        """As `each`, side by side where the files are large: for the long steps of a search."""
        if len(self.files) == 1 or sum(map(_size, self.files)) < SIDE_BY_SIDE:
            return self.each(work)
        from concurrent.futures import wait  # here: as in _pool

        waiting = {file: _pool().submit(self._run, work, file) for file in self.files[1:]}

        def share(file: SearchedFile) -> T:
            # What no other thread has begun is done here, rather than waited for.
            if file not in waiting or waiting[file].cancel():
                return self._run(work, file)
            return waiting[file].result()

        order = [self.files[0], *reversed(waiting)]
        try:
            done = self._collected({file: partial(share, file) for file in order})
        finally:  # an error must not end the reads of those still at work
            wait([future for future in waiting.values() if not future.cancelled()])
        return {file: done[file] for file in self.files}

    def _run(self, work: Callable[[SearchedFile, Connection], T], file: SearchedFile) -> T:
        with file.database.translated():
            return work(file, self._connections[file])

    def _collected(self, results: Mapping[SearchedFile, Callable[[], T]]) -> dict[SearchedFile, T]:
        done: dict[SearchedFile, T] = {}
        for file, result in results.items():
            try:
                done[file] = result()
            except FileError as error:
                self.leave_out(file, error)
        return done

    def leave_out(self, file: SearchedFile, error: KbError) -> None:
        """Go on without a file.

        Raises:
            KbError: the error itself, when no other file is left.
        """
        self.files.remove(file)
        if not self.files:
            raise error
        self.lost.append(left_out(file.label, error))


def _size(file: SearchedFile) -> int:
    """Its bytes; 0 of one in memory, or that is gone."""
    try:
        return file.database.path.stat().st_size
    except OSError:
        return 0


def left_out(label: str, error: KbError) -> str:
    """What to tell of a file that does not answer."""
    return f"{label} was left out: {error.message.rstrip('.')}."


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # here: one file needs none

    # The thread that asks does its share.
    return ThreadPoolExecutor(max(available_cores() - 1, 1), "files")
