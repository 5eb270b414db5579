"""Run the write flow: sources -> parse -> chunk -> store. Skip what is unchanged.

Text first: each document is one transaction, or shares one with a few, and is found by keywords
at once. `kb/ingest/embed.py` gives the chunks their vectors afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.disk.secret import is_secret
from kb.ingest.prepare import Preparation, files_of, is_inside, opened
from kb.ingest.progress import Progress, no_progress
from kb.ingest.read_ahead import reading
from kb.ingest.refused import (
    nothing_readable,
    other_formats,
    shown_globs,
    without_unavailable,
    would_empty,
)
from kb.ingest.registration import Plan, Registration, as_told
from kb.ingest.report import SyncReport
from kb.ingest.secret_files import erase_secret_files, named
from kb.ingest.sync_run import MOST_TOGETHER, SyncRun
from kb.sources.opened import Opened
from kb.store.connection import Row
from kb.store.contents import count_documents, stored_files, stored_private_keys
from kb.store.database import Database
from kb.store.file_on_disk import is_part_of
from kb.store.tidying import close_ranks, tidy

__all__ = [
    "SyncReport",
    "sync_collection",
]


def sync_collection(
    database: Database,
    collection: Row | Registration,
    *,
    force: bool = False,
    may_become_empty: bool = False,
    reads_ahead: bool = False,
    progress: Progress = no_progress,
) -> SyncReport:
    """Bring a collection's documents in line with its folder; no embedding yet.

    Args:
        collection: a row of `collections`, or what is to become one: that is stored together
            with the first document, so that nothing has changed when this is refused.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.
        may_become_empty: let it do so without reading the other files again.
        reads_ahead: where there is much text, a second process parses it. Nobody else is to
            compute on this machine's cores meanwhile, such as a server that answers.

    A document that cannot be read, or not in reasonable time, is an error of the report.

    Raises:
        SourceError: the folder is missing, or the sync would leave nothing of a collection that
            holds something, or nothing of what is to be added can be read.
        UsageError: the collection cannot be made, or one of its globs can match nothing.
        CollectionNotFound: it was removed meanwhile.
    """
    registration = None if isinstance(collection, dict) else collection
    plan = _plan(database, collection)
    with opened(plan.row) as source:
        told = as_told(registration, plan.row, source.manifest)
        if told is not None and told is not registration:
            registration, plan = told, _plan(database, told)
        return _sync_files(
            database,
            plan,
            registration,
            source,
            is_addition=not isinstance(collection, dict),
            force=force,
            may_become_empty=may_become_empty or force,
            reads_ahead=reads_ahead,
            progress=progress,
        )


def _sync_files(
    database: Database,
    plan: Plan,
    registration: Registration | None,
    source: Opened,
    *,
    is_addition: bool,
    force: bool,
    may_become_empty: bool,
    reads_ahead: bool,
    progress: Progress,
) -> SyncReport:
    """The sync itself."""
    row = plan.row
    report = SyncReport(row["name"])
    unreadable: list[str] = []

    def note(path: str, message: str) -> None:
        report.fail(path, message)
        unreadable.append(path)

    # Before the walk: what another process adds after it is not taken for gone.
    stored = _stored(database, plan, report)
    withheld: list[str] = []
    skipped: list[str] = []
    files = files_of(row, source, report=note, withhold=withheld.append, skip=skipped.append)
    skipped = [path for path in skipped if not is_part_of(database.path, source.root / path)]
    if registration is not None and skipped:
        report.tell(other_formats(skipped))
    if stored and not files and not may_become_empty:
        raise would_empty(row, len(stored), is_addition=is_addition)
    if not files and shown_globs(row):
        message = f"no file matches{shown_globs(row)}; `kb add` with other globs replaces them"
        report.tell(message)
    for text in source.notices:
        report.tell(text)
    found = {file.path for file in files}
    gone = {path: known for path, known in stored.items() if path not in found}
    # What could not be listed may still be there: it is neither deleted nor taken for renamed.
    gone = {path: known for path, known in gone.items() if not is_inside(path, unreadable)}
    preparation = Preparation.of(row)
    files = without_unavailable(files, preparation, report, source.root)
    run = SyncRun(
        *(database, row, registration, stored, gone, force, report, source),
        *(preparation.read, note, MOST_TOGETHER if reads_ahead else 1),
    )
    to_read = [file for file in files if not run.seems_unchanged(file)] if reads_ahead else []
    hashes = {path: known["content_hash"] for path, known in stored.items()}
    with database.batch(), preparation.converter, reading(preparation, to_read, hashes) as run.read:
        try:
            for done, file in enumerate(files):
                progress("documents", done, len(files))
                with run.noting(file):
                    run.sync_file(file)
        finally:
            run.store_ready()
        progress("documents", len(files), len(files))
        if not run.has_read:
            if is_addition and report.errors and registration and not registration.keeps_empty:
                raise nothing_readable(row, report, found_none=not found)
            if gone and len(gone) == len(stored) and not may_become_empty:
                raise would_empty(row, len(stored), is_addition=is_addition)
        taken_back = [path for path in run.secret if path in stored]
        _take_back(database, row["collection_id"], taken_back, report)
        if plan.is_stored and run.has_changed_nothing:
            with database.read() as connection:
                report.total = count_documents(connection, row["collection_id"])
        else:
            run.finish()
        if report.added or report.updated or report.removed:
            tidy(database)
        if report.updated or report.removed:
            close_ranks(database)
    if withheld or run.secret:
        message = f"never stored: {named([*withheld, *run.secret])}"
        report.tell(message)
    return report


def _plan(database: Database, collection: Row | Registration) -> Plan:
    if isinstance(collection, dict):
        return Plan(collection)
    with database.read() as connection:
        return collection.plan(connection)


def _stored(database: Database, plan: Plan, report: SyncReport) -> dict[str, Row]:
    """The stored files by path; secret ones that an earlier version of kb let in go first."""
    collection_id = plan.row["collection_id"]
    with database.read() as connection:
        rows = stored_files(connection, collection_id)
        keys = stored_private_keys(connection, collection_id)
    stored = {row["path"]: row for row in rows}
    secret = [path for path in stored if is_secret(path)]
    _take_back(database, collection_id, secret, report)
    for path in stored.keys() if plan.reads_anew else keys:
        # No time is right for it: it is read again, and a key is taken back if it still is one.
        stored[path] = {**stored[path], "file_size": None, "modified_ns": None}
        if plan.reads_anew:
            stored[path]["content_hash"] = b""
    return {path: row for path, row in stored.items() if path not in secret}


def _take_back(
    database: Database, collection_id: int, paths: Sequence[str], report: SyncReport
) -> None:
    if paths:
        message = erase_secret_files(database, collection_id, paths)
        report.removed += len(paths)
        report.tell(message)
