"""An open knowledge base: its file, what is read beside it, names and aliases of collections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from kb.disk.read import is_there, read_bytes, reason
from kb.disk.watch import FolderStates
from kb.settings import find_project, user_configuration
from kb.store.collections import Names
from kb.store.database import AttachedFiles, Database
from kb.text.counted import some_of
from kb.text.decode import encodable
from kb.text.json_text import JsonError, parse_json

log = logging.getLogger("kb")
ALIAS_FILES = ("kb.json", "context.json")
_KEYS = ("collections", "$schema")
_FORM = '{"collections": {"alias": "collection id"}}'
MAXIMUM_BYTES = 1_000_000
MOST_SHOWN = 60  # characters of a key in a message


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
        self._shards: dict[Database, OpenFile] = {}
        self._memory: Database | None = None
        self.has_memory = False  # whether anything was put into memory yet
        self._lock = threading.Lock()

    def close(self) -> None:
        self.database.close()
        self.beside.close()
        if self._memory is not None:
            self._memory.close()

    @property
    def memory(self) -> Database:
        """A second file, in memory, for indexes that go with the process."""
        with self._lock:
            if self._memory is None:
                self._memory = Database(":memory:")
                self.has_memory = True
            return self._memory

    def shard(self, database: Database) -> OpenFile:
        """A shard beside this file; one object for all who ask."""
        with self._lock:
            if database not in self._shards:
                file = OpenFile(database, project=self.project, has_project=False)
                file.additions = self.additions
                self._shards[database] = file
            return self._shards[database]

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


def load_aliases(project: Path, warn: Callable[[str], None]) -> dict[str, str]:
    """Alias -> collection id. The project's `kb.json` or `context.json` wins over the user's.

    The file holds `{"collections": {"alias": "collection id"}}`; an object with an `id` in
    place of the text is accepted too.

    Args:
        warn: called with what is wrong with a file, which then gives no alias. Any project that
            somebody cloned can bring such a file along, and other programs have a `context.json`
            too: it must stop nothing.
    """
    aliases: dict[str, str] = {}
    for folder in (user_configuration(), project / ".kb", project):
        file = next((p for name in ALIAS_FILES if is_there(p := folder / name)), None)
        if file is None:
            continue
        try:
            aliases.update(_read_aliases(file, warn))
        except OSError as error:
            warn(f"cannot read {file}: {reason(error)}; its aliases are left out")
        except (JsonError, RuntimeError) as error:  # a loop of links
            warn(f"{file} is not JSON that can be read ({error}); its aliases are left out")
    return aliases


def _read_aliases(file: Path, warn: Callable[[str], None]) -> dict[str, str]:
    content: Any = parse_json(read_bytes(file.resolve(), MAXIMUM_BYTES))
    entries = content.get("collections", {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        warn(f"{file} must hold {_FORM}; its aliases are left out")
        return {}
    # A context.json is mostly another program's: there only what looks misspelt is told.
    foreign = [key[:MOST_SHOWN] for key in content if key not in _KEYS]
    if file.name != ALIAS_FILES[0]:
        foreign = [key for key in foreign if key.casefold().startswith("col")]
    if foreign:
        warn(f"{file}: not used: {encodable(some_of(foreign))}; it must hold {_FORM}")
    aliases: dict[str, str] = {}
    for alias, entry in entries.items():
        target = entry.get("id") if isinstance(entry, dict) else entry
        # JSON can hold half of a surrogate pair, which nothing can write.
        if not isinstance(target, str) or encodable(alias + target) != alias + target:
            warn(
                f'{file}: the alias "{encodable(alias)}" must name a collection id; it is left out'
            )
        else:
            aliases[alias] = target
    return aliases
