"""How far a collection is from its folder, looked at without changing anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kb.errors import KbError
from kb.ingest.prepare import Preparation, files_of, is_inside, opened
from kb.sources.folder import SecretFile, SourceFile
from kb.store.connection import Row
from kb.store.contents import stored_files
from kb.store.database import Database

MOST_READ = 200  # files that are opened to learn why they are not stored, or whether they changed


@dataclass(slots=True)
class Freshness:
    """What a sync would find."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    withheld: list[str] = field(default_factory=list)  # secret files, which are never stored
    # By format: files that are left out, since what reads them is not installed.
    unavailable: Counter[str] = field(default_factory=Counter)

    @property
    def is_fresh(self) -> bool:
        return not (self.new or self.changed or self.gone)

    def fail(self, path: str, reason: str) -> None:
        """Note a file that cannot be stored."""
        self.failed.append((path, reason))


def look_at(database: Database, collection: Row) -> Freshness:
    """Compare what is stored of a collection with its folder.

    A file whose size and time are as they were is taken for unchanged.

    Raises:
        SourceError: the folder cannot be read.
    """
    found = Freshness()
    preparation = Preparation.of(collection)
    with database.read() as connection:
        rows = stored_files(connection, collection["collection_id"])
    stored = {row["path"]: row for row in rows}
    with opened(collection, fetch=False) as source, preparation.converter:
        files = files_of(collection, source, report=found.fail, withhold=found.withheld.append)
        elsewhere = {entry.path for entry in source.manifest.entries if entry.url}
        stored = {path: row for path, row in stored.items() if path not in elsewhere}
        _compare(found, files, stored, preparation)
    return found


def _compare(
    found: Freshness,
    files: list[SourceFile],
    stored: dict[str, Row],
    preparation: Preparation,
) -> None:
    unknown = [path for path, _ in found.failed]
    missing = sorted(stored.keys() - {file.path for file in files})
    found.gone = [path for path in missing if not is_inside(path, unknown)]
    number_read = 0
    for file in files:
        row = stored.get(file.path)
        if row and (row["file_size"], row["modified_ns"]) == (file.size, file.modified_ns):
            continue
        kind = preparation.format_of(file)
        if kind is not None and not kind.is_available:
            found.unavailable[kind.name] += 1
            continue
        number_read += 1
        if number_read > MOST_READ:
            (found.changed if row else found.new).append(file.path)
        else:
            _read(found, file, row, preparation)


def _read(found: Freshness, file: SourceFile, row: Row | None, preparation: Preparation) -> None:
    """Tell a file that changed from one that was only touched, or that cannot be stored."""
    try:
        content = preparation.read(file)
        if row is None:
            content.prepare()
            found.new.append(file.path)
        elif row["content_hash"] != content.content_hash:
            found.changed.append(file.path)
    except SecretFile:
        found.withheld.append(file.path)
    except KbError as error:
        found.fail(file.path, error.message)
    except Exception as error:  # noqa: BLE001 - whatever keeps a document out is what we tell
        found.fail(file.path, f"{type(error).__name__}: {error}")
