"""Files that are read beside the one that is written, each opened as soon as it can be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from kb.errors import FileError
from kb.settings import FILE_NAME
from kb.store.database import Database


class AttachedFiles:
    """Files to be read. One that is missing or damaged is tried again the next time.

    Args:
        lost: why other files cannot be opened; these are not tried again.
        late: says what the file that is read itself may lack.
    """

    def __init__(
        self,
        paths: Sequence[Path] = (),
        lost: Sequence[str] = (),
        late: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.paths = paths
        self._lost = lost
        self._late = late
        self._open: dict[Path, Database] = {}
        self._lock = threading.Lock()
        self._missing: list[str] = []

    @property
    def unavailable(self) -> list[str]:
        """Why each missing file could not be opened last time, one sentence each."""
        return [*self._lost, *self._missing, *self._late()]

    def databases(self) -> list[Database]:
        """The files that can be read now; `unavailable` says why others cannot."""
        with self._lock:
            missing, databases = [], []
            for path in self.paths:
                try:
                    databases.append(self._database(path))
                except FileError as error:
                    missing.append(f"Left out: {error.message.rstrip('.')}.")
            self._missing = missing
            return databases

    def close(self) -> None:
        for database in self._open.values():
            database.close()

    def _database(self, path: Path) -> Database:
        if path in self._open and not self._open[path].is_in_place():
            self._open.pop(path).close()
        if path not in self._open:
            self._open[path] = Database(path, create=False)
        return self._open[path]


def labels(paths: Sequence[Path]) -> list[str]:
    """A distinct label for each file: its name, or that of its project's folder."""
    chosen: list[str] = []
    for path in map(Path.absolute, paths):
        is_project = path.parts[-2:] == FILE_NAME.parts
        name = path.parent.parent.name if is_project else path.stem
        names = [name, *(f"{name}-{number}" for number in range(2, len(paths) + 1))]
        chosen.append(next(name for name in names if name not in chosen))
    return chosen
