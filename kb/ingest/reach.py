"""What the collections of a file read beyond its project, and whether this user allowed it.

A file's author, who may be a stranger, wrote where its collections come from. They may look inside
the project that holds the file; every other folder, every address and private addresses are read
once this user has named them here: by adding them, or by `kb trust`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from kb.errors import SourceError
from kb.results.findings import Reach
from kb.sources.address import is_remote, local
from kb.store.connection import Row
from kb.store.database import Database
from kb.store.mark import Mark
from kb.store.opening import folders
from kb.text.file_names import on_disk


def unconfirmed(database: Database, rows: Sequence[Row]) -> list[Reach]:
    """What collections would read that this user has not confirmed."""
    reaches = []
    _, project = folders(database.path)
    for row in rows:
        if not (source := row["source"]):
            continue
        if not (_is_inside(source, project) or database.mark.allows(source)):
            reaches.append(Reach(row["name"], source))
        if _may_be_private(row) and not database.mark.allows(source, is_private=True):
            reaches.append(Reach(row["name"], source, is_private=True))
    return reaches


def confirm(database: Database, reaches: Sequence[Reach]) -> None:
    """Note that this user lets collections read these."""
    for reach in reaches:
        database.mark.confirm_source(reach.source, is_private=reach.is_private)


def take_along(database: Database, row: Row, mark: Mark) -> None:
    """Confirm for another file what this collection may read."""
    refused = unconfirmed(database, [row])
    if row["source"] and all(reach.is_private for reach in refused):
        mark.confirm_source(row["source"], is_private=_may_be_private(row) and not refused)


def permitted(database: Database, row: Row) -> Row:
    """A collection as it may be read: without private addresses that this user has not named.

    Raises SourceError if it would read something else that this user has not named.
    """
    for reach in unconfirmed(database, [row]):
        if not reach.is_private:
            raise SourceError(
                f"not read: {reach.source} is outside of the project, and nobody has said on this "
                f"machine that {database.path} may read it; `kb trust {row['name']}` says so",
                path=reach.source,
            )
        options = {**json.loads(row["options"]), "allow_private": False}
        row = {**row, "options": json.dumps(options, ensure_ascii=False)}
    return row


def _may_be_private(row: Row) -> bool:
    return bool(json.loads(row["options"]).get("allow_private"))


def _is_inside(source: str, project: str) -> bool:
    """Whether a source, links followed, is in the project whose file names it."""
    if not project or is_remote(source):
        return False
    try:
        root = os.path.realpath(on_disk(project))
        return Path(os.path.realpath(local(source))).is_relative_to(root)
    except ValueError:  # a NUL
        return False
