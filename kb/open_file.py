"""An open knowledge base: its file, what is read beside it, and the names in it."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from pathlib import Path

from kb.disk.aliases import load_aliases
from kb.disk.folder_state import FolderStates
from kb.settings import find_project
from kb.store.collections import Names
from kb.store.database import AttachedFiles, Database

log = logging.getLogger("kb")


class OpenFile:
    """An open file with the settings of its project.

    Args:
        database: the file.
        project: where alias files are looked for; found from the working directory by default.
        beside: files that are read together with this one.
        has_project: whether a project's files and configuration belong to it: not to one of many
            that are served side by side.
    """

    def __init__(
        self,
        database: Database,
        *,
        project: Path | None = None,
        beside: AttachedFiles | None = None,
        has_project: bool = True,
    ) -> None:
        self.database = database
        self.has_project = has_project
        self.beside = beside or AttachedFiles()
        self.project = project or find_project()
        self.sync_lock = threading.Lock()  # held while folders are synced in the background
        self.archive_folders = FolderStates(database.path)
        self.additions = threading.Event()  # set while what came in by a call waits for vectors
        self._memory: Database | None = None
        self._memory_lock = threading.Lock()

    def close(self) -> None:
        self.database.close()
        self.beside.close()
        if self._memory is not None:
            self._memory.close()

    @property
    def memory(self) -> Database:
        """A second file, in memory, for indexes that go with the process."""
        with self._memory_lock:
            if self._memory is None:
                self._memory = Database(":memory:")
            return self._memory

    @property
    def has_memory(self) -> bool:
        """Whether anything was put into memory yet."""
        return self._memory is not None

    @property
    def databases(self) -> list[Database]:
        """Where collections lie that are written: in memory, once something is there, and here."""
        return [self._memory, self.database] if self._memory is not None else [self.database]

    @cached_property
    def names(self) -> Names:
        """Collections and documents by name, with the aliases of the project and the user.

        What is wrong with an alias file is logged, and a notice of the names.
        """
        notices: list[str] = []
        aliases = load_aliases(self.project, notices.append)
        for notice in notices:
            log.warning("%s", notice)
        return Names(aliases, notices)
