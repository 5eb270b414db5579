"""How far a collection is from its folder, looked at without changing anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kb.errors import DocumentTooComplex, SourceError
from kb.formats.archive import read_archive, walk_archive
from kb.ingest.sync import prepare_document
from kb.sources.folder import SecretFile, SourceFile, SourceText, read, walk
from kb.store.database import Database, Row

MOST_READ = 200  # files that are opened to learn why they are not stored, or whether they changed


@dataclass(slots=True)
class Freshness:
    """What a sync would find."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    withheld: list[str] = field(default_factory=list)  # secret files, which are never stored

    @property
    def is_fresh(self) -> bool:
        return not (self.new or self.changed or self.gone)


def look_at(database: Database, collection: Row) -> Freshness:
    """Compare what is stored of a collection with its folder.

    A file whose size and time are as they were is taken for unchanged.

    Raises:
        SourceError: the folder cannot be read.
    """
    found = Freshness()
    is_archive = collection["kind"] == "archive"
    files = list(
        (walk_archive if is_archive else walk)(
            Path(collection["source"]),
            json.loads(collection["include"]),
            json.loads(collection["exclude"]),
            report=lambda path, message: found.failed.append((path, message)),
            withhold=found.withheld.append,
        )
    )
    with database.read() as connection:
        rows = connection.rows("stored_files", collection_id=collection["collection_id"])
    stored = {row["path"]: row for row in rows}
    present = {file.path for file in files}
    unknown = {path for path, _ in found.failed}
    found.gone = sorted(stored.keys() - present - unknown)
    opened = 0
    for file in files:
        row = stored.get(file.path)
        if row is not None and (row["file_size"], row["modified_ns"]) == (
            file.size,
            file.modified_ns,
        ):
            continue
        opened += 1
        if opened > MOST_READ:
            (found.changed if row else found.new).append(file.path)
            continue
        _read(
            found,
            file,
            row,
            read_archive if is_archive else read,
            json.loads(collection["options"]),
        )
    return found


def _read(
    found: Freshness,
    file: SourceFile,
    row: Row | None,
    read_file: Callable[[SourceFile], SourceText],
    options: dict[str, object],
) -> None:
    """Tell a file that changed from one that was only touched, or that cannot be stored."""
    try:
        source = read_file(file)
        if row is None:
            prepare_document(file, source, options)
            found.new.append(file.path)
        elif row["content_hash"] != source.content_hash:
            found.changed.append(file.path)
    except SecretFile:
        found.withheld.append(file.path)
    except (SourceError, DocumentTooComplex) as error:
        found.failed.append((file.path, error.message))
    except Exception as error:  # noqa: BLE001 - whatever keeps a document out is what we tell
        found.failed.append((file.path, f"{type(error).__name__}: {error}"))
