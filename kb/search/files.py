"""Several files searched as one: large ones in parallel, and without any that fails.

A search's steps are functions that take the file, a read of it and more: see
`kb/search/policy.py`. A file on another machine runs them there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from kb.errors import FileError, KbError
from kb.model_in_use import ModelInUse
from kb.models.embedder import available_cores
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.names import Names
from kb.store.sqlite_errors import translated

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

# Total bytes from which reading in parallel pays (docs/decisions/0022-search-at-size.md).
SIDE_BY_SIDE = 500_000_000


class LostReadError(Exception):
    """A read of a remote file broke off; the search can be started again."""


class SearchedFile:
    """An open file as a search sees it; `label` is its name for people."""

    is_far = False  # on another machine

    def __init__(self, model: ModelInUse, names: Names, label: str = "The file") -> None:
        self.model = model
        self.names = names
        self.label = label

    @property
    def database(self) -> Database:
        return self.model.database

    def read(self) -> AbstractContextManager[Any]:
        """A read of the file, for `begin`. Raises FileError if it cannot be read."""
        return self.model.database.read()

    def begin(self, read: Any, step: Callable[..., T], arguments: Sequence[Any]) -> Callable[[], T]:
        """Begin a step; returns a function that gives its result."""
        return partial(step, self, read, *arguments)


class Together:
    """The files of a search; one that cannot be read is left out, and the reader is told."""

    def __init__(self, files: Sequence[SearchedFile]) -> None:
        self.files = list(files)  # those that answer
        self.lost: list[str] = []  # why each of the others does not
        self._reads: dict[SearchedFile, Any] = {}

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """A read of every file, for `each`."""
        with contextlib.ExitStack() as reads:
            for file in [*self.files]:
                try:
                    self._reads[file] = reads.enter_context(file.read())
                except FileError as error:
                    self.leave_out(file, error)
            yield

    def each(
        self,
        step: Callable[..., T],
        *arguments: Any,
        of: Mapping[SearchedFile, Any] | None = None,
        at_once: bool = False,
    ) -> dict[SearchedFile, T]:
        """The result of a step on each file, or on those in `of` with its last argument, inside
        `read`; long steps run `at_once` in large files. Raises what keeps all from answering."""
        begun: dict[SearchedFile, Callable[[], T]] = {}
        for file in self.files:
            if of is None or file in of:
                more = arguments if of is None else (*arguments, of[file])
                begun[file] = file.begin(self._reads[file], step, more)
        results: dict[SearchedFile, T] = {}
        with contextlib.ExitStack() as end:
            if at_once and len(begun) > 1 and sum(map(_size, begun)) >= SIDE_BY_SIDE:
                begun = _side_by_side(begun, end)
            for file, finish in begun.items():
                try:
                    with translated(file.model.database.path):
                        results[file] = finish()
                except FileError as error:
                    self.leave_out(file, error)
        return results

    def refuse_name(self, name: str) -> None:
        """Raise CollectionNotFound, with the nearest names of all files."""
        others = [other for of_file in self.each(_names).values() for other in of_file]
        self.each(_collection, name, of={self.files[0]: others})

    def leave_out(self, file: SearchedFile, error: KbError) -> None:
        """Continue without a file. Raises its error if no other file is left."""
        self.files.remove(file)
        if not self.files:
            raise error
        self.lost.append(left_out(file.label, error))


def _side_by_side(
    begun: Mapping[SearchedFile, Callable[[], T]], end: contextlib.ExitStack
) -> dict[SearchedFile, Callable[[], T]]:
    """The same, in threads; not in the order of the files."""
    from concurrent.futures import wait  # here: as in _pool

    first, *others = begun
    waiting = {file: _pool().submit(begun[file]) for file in others}
    # An error must not end reads that are still in use.
    end.callback(lambda: wait([future for future in waiting.values() if not future.cancelled()]))

    def share(file: SearchedFile) -> T:
        # What no other thread has begun is done here instead of waiting.
        if file not in waiting or waiting[file].cancel():
            return begun[file]()
        return waiting[file].result()

    return {file: partial(share, file) for file in [first, *reversed(others)]}


def _names(file: SearchedFile, connection: Connection) -> set[str]:
    return file.names.existing(connection)


def _collection(
    file: SearchedFile, connection: Connection, name: str, others: Sequence[str]
) -> None:
    file.names.collection(connection, name, others=others)


def _size(file: SearchedFile) -> int:
    """Its local size in bytes; 0 if it is in memory, remote or gone."""
    try:
        return 0 if file.is_far else file.model.database.path.stat().st_size
    except OSError:
        return 0


def left_out(label: str, error: KbError) -> str:
    return f"{label} was left out: {error.message.rstrip('.')}."


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # here: one file needs none

    return ThreadPoolExecutor(max(available_cores() - 1, 1), "files")  # and the calling thread
