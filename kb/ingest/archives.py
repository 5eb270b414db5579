"""Archives that the environment names: registered and synced before they are searched."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from kb.errors import SourceError
from kb.formats.archive_kinds import RESEARCH, URL_CONTENT
from kb.ingest import captures
from kb.ingest.registration import SourceRegistration
from kb.ingest.sync import sync_collection
from kb.knowledge_base import KnowledgeBase
from kb.store.collections import all_collections
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.text.file_names import storable

log = logging.getLogger("kb.archives")

VARIABLES = {"RESEARCH_ARCHIVE_PATH": RESEARCH, captures.VARIABLE: URL_CONTENT}


def sync_configured_archives(
    knowledge: KnowledgeBase, named: Mapping[str, tuple[Path, str]] | None = None
) -> bool:
    """Bring the archives of the environment and of the project up to date, once for an open file.

    Args:
        named: by what names it, further folders and what they hold.

    Returns whether one was synced just now, so that vectors may be missing.

    A folder that is missing is an error only when nothing of it is stored: a copied file works
    without its sources.

    Raises:
        SourceError: a variable names a folder that is not there.
    """
    database = knowledge.database
    synced = False
    wanted = {
        variable: (Path(value).expanduser().resolve(), source)
        for variable, source in VARIABLES.items()
        if (value := os.environ.get(variable))
    }
    for variable, (root, source) in {**wanted, **(named or {})}.items():
        if database.read_only:
            continue
        with knowledge.archives_in_step.first_time(str(root)) as is_due:
            if is_due:
                synced |= _bring_up_to_date(database, variable, root, source)
    return synced


def _bring_up_to_date(database: Database, variable: str, root: Path, source: str) -> bool:
    """Sync an archive's folder, and whether that was done."""
    if not root.is_dir():
        with database.read() as connection:
            known = _known(connection, root)
        if known is None:
            raise SourceError(f"{variable} names {root}, which is no folder", path=str(root))
        log.warning("%s names %s, which is gone: searching what is stored", variable, root)
        return False
    report = sync_collection(database, _registered(database, root, source))
    for problem in report.errors:
        log.warning("%s: %s: %s", root, problem["path"], problem["message"])
    return True


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
