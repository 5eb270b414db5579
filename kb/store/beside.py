"""Files that are read beside the one that is written, each opened as soon as it can be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from kb.errors import FileError
from kb.settings import FILE_NAME
from kb.store.database import Database

__all__ = ["FilesBeside", "labels"]


class FilesBeside:
    """Some files to be read. One that is missing or damaged is looked at again the next time.

    Args:
        lost: what is wrong with a file that will not be looked at again.
        late: says what the file that is read itself may lack, whenever it is asked.
    """

    def __init__(
        self,
        paths: Sequence[Path] = (),
        lost: Sequence[str] = (),
        late: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.paths = paths
        self._always_lost = list(lost)
        self._late = late
        self._open: dict[Path, Database] = {}
        self._lock = threading.Lock()
        self._lost = self._always_lost

    @property
    def lost(self) -> list[str]:
        """What was not to be had when the files were last asked for, in sentences."""
        return [*self._lost, *self._late()]

    def databases(self) -> list[Database]:
        """Those that can be read now; `lost` tells of the others."""
        if not self.paths:
            return []
        with self._lock:
            lost = [*self._always_lost]
            found = []
            for path in self.paths:
                try:
                    found.append(self._database(path))
                except FileError as error:
                    lost.append(f"Left out: {error.message.rstrip('.')}.")
            self._lost = lost
            return found

    def close(self) -> None:
        for database in self._open.values():
            database.close()

    def _database(self, path: Path) -> Database:
        database = self._open.get(path)
        if database is not None and not database.is_in_place():
            self._open.pop(path).close()
            database = None
        if database is None:
            database = self._open[path] = Database(path, create=False)
        return database


def labels(paths: Sequence[Path]) -> list[str]:
    """What files are called where that tells them apart: by name, or by their project's folder."""
    found: list[str] = []
    for path in map(Path.absolute, paths):
        is_project = path.parts[-2:] == FILE_NAME.parts
        name = path.parent.parent.name if is_project else path.stem
        names = [name, *(f"{name}-{number}" for number in range(2, len(paths) + 1))]
        found.append(next(one for one in names if one not in found))
    return found
