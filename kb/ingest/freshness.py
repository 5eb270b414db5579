"""How far a collection is from its folder, without changing anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kb.disk.read import UNKNOWN_STATE
from kb.errors import KbError
from kb.ingest.prepare import Preparation, files_of, is_inside, opened
from kb.sources.folder import SecretFile, SourceFile
from kb.store.connection import Row
from kb.store.contents import state_of, stored_files
from kb.store.database import Database

MAX_READ = 200  # files that are opened to learn why they are not stored, or whether they changed


@dataclass(slots=True)
class Freshness:
    """What a sync would do."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    withheld: list[str] = field(default_factory=list)  # secret files, which are never stored
    unavailable: Counter[str] = field(default_factory=Counter)  # left out, by missing format

    @property
    def is_fresh(self) -> bool:
        return not (self.new or self.changed or self.gone)


def look_at(database: Database, collection: Row) -> Freshness:
    """Compare a collection with its folder, file by file. Raises SourceError if unreadable."""
    fresh = Freshness()
    preparation = Preparation.of(collection)
    with database.read() as connection:
        rows = stored_files(connection, collection["collection_id"])
    with opened(collection, fetch=False) as source, preparation.converter:
        files = files_of(
            collection,
            source,
            report=lambda path, message: fresh.failed.append((path, message)),
            withhold=fresh.withheld.append,
        )
        elsewhere = {entry.path for entry in source.manifest.entries if entry.url}
        stored = {row["path"]: row for row in rows if row["path"] not in elsewhere}
        unread = [path for path, _ in fresh.failed]
        gone = sorted(stored.keys() - {file.path for file in files})
        fresh.gone = [path for path in gone if not is_inside(path, unread)]
        number_read = 0
        for file in files:
            row = stored.get(file.path)
            state = state_of(row) if row else UNKNOWN_STATE
            if state == file.state:
                continue
            kind = preparation.format_of(file)
            if kind is not None and not kind.is_available:
                fresh.unavailable[kind.name] += 1
                continue
            number_read += 1
            if number_read <= MAX_READ:
                _read(fresh, file, row, preparation)
            elif state[:2] != file.state[:2]:  # else copied with its time: the next sync reads it
                (fresh.changed if row else fresh.new).append(file.path)
    return fresh


def _read(fresh: Freshness, file: SourceFile, row: Row | None, preparation: Preparation) -> None:
    """Tell changed files from those that were only touched, or cannot be stored."""
    try:
        content = preparation.read(file)
        if row is None:
            content.prepare()
            fresh.new.append(file.path)
        elif row["content_hash"] != content.content_hash:
            fresh.changed.append(file.path)
    except SecretFile:
        fresh.withheld.append(file.path)
    except KbError as error:
        fresh.failed.append((file.path, error.message))
    except Exception as error:  # noqa: BLE001 - whatever keeps a document out is what we tell
        fresh.failed.append((file.path, f"{type(error).__name__}: {error}"))
