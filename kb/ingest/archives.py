"""Archives that the environment names: registered and synced before they are searched."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from kb.errors import SourceError
from kb.formats.archive_kinds import RESEARCH, URL_CONTENT
from kb.ingest import captures
from kb.ingest.registration import SourceRegistration
from kb.ingest.sync import sync_collection
from kb.store.collections import all_collections
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.text.file_names import storable

log = logging.getLogger("kb.archives")

VARIABLES = {"RESEARCH_ARCHIVE_PATH": RESEARCH, captures.VARIABLE: URL_CONTENT}

_synced: set[tuple[str, str]] = set()  # file and archive, once in a process
_lock = threading.Lock()


def sync_configured_archives(
    database: Database, named: Mapping[str, tuple[Path, str]] | None = None
) -> bool:
    """Bring the archives of the environment and of the project up to date, once in a process.

    Args:
        named: by what names it, further folders and what they hold.

    Returns whether one was synced just now, so that vectors may be missing.

    A folder that is missing is an error only when nothing of it is stored: a copied file works
    without its sources.

    Raises:
        SourceError: a variable names a folder that is not there.
    """
    synced = False
    wanted = {
        variable: (Path(value).expanduser().resolve(), source)
        for variable, source in VARIABLES.items()
        if (value := os.environ.get(variable))
    }
    for variable, (root, source) in {**wanted, **(named or {})}.items():
        if database.read_only:
            continue
        mark = (str(database.path), str(root))
        with _lock:
            if mark in _synced:
                continue
            if not root.is_dir():
                with database.read() as connection:
                    known = _known(connection, root)
                if known is None:
                    raise SourceError(
                        f"{variable} names {root}, which is no folder", path=str(root)
                    )
                log.warning("%s names %s, which is gone: searching what is stored", variable, root)
                _synced.add(mark)
                continue
            report = sync_collection(database, _registered(database, root, source))
            for problem in report.errors:
                log.warning("%s: %s: %s", root, problem["path"], problem["message"])
            _synced.add(mark)
            synced = True
    return synced


def _known(connection: Connection, root: Path) -> Row | None:
    rows = all_collections(connection)
    return next((row for row in rows if row["source"] == storable(root)), None)


def _registered(database: Database, root: Path, source: str) -> Row | SourceRegistration:
    with database.read() as connection:
        known = _known(connection, root)
    return known or SourceRegistration(
        storable(root),
        storable(root.name),
        kind="archive",
        settings={"source": source},
        keeps_empty=True,
    )
