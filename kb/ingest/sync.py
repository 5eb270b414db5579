"""Run the write flow: sources -> parse -> chunk -> store. Skip what is unchanged.

Each document is one transaction, or shares one with a few, and is found by keywords at once.
`kb/ingest/embed.py` gives the chunks their vectors afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kb.disk.open_databases import is_open_database
from kb.disk.secret import is_secret
from kb.errors import SourceError
from kb.formats.convert.formats import INSTALL
from kb.ingest.cut import is_of_shard
from kb.ingest.forget import erase_documents, write_anew
from kb.ingest.link_targets import look_again
from kb.ingest.prepare import Preparation, files_of, is_inside, opened
from kb.ingest.reach import permitted
from kb.ingest.read_ahead import reading
from kb.ingest.registration import Plan, Registration, with_manifest
from kb.ingest.report import (
    Progress,
    SyncReport,
    no_progress,
    nothing_readable,
    other_formats,
    secret_names,
    shown_globs,
    would_empty,
)
from kb.ingest.sync_run import MAX_BATCH_DOCUMENTS, SyncRun
from kb.sources.folder import Opened, SourceFile
from kb.store.connection import Row
from kb.store.contents import count_documents, stored_file, stored_files, stored_private_keys
from kb.store.database import Database
from kb.store.tidying import close_ranks, tidy
from kb.text.counted import most_first


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

    A document that cannot be read, or not in reasonable time, is an error of the report.

    Args:
        collection: a row of `collections`, or what is to become one: that is stored together
            with the first document, so that nothing has changed when this is refused.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.
        may_become_empty: let it do so without reading the other files again.
        reads_ahead: let a second process parse, where there is much text. Not for a server,
            whose answers need the other cores.

    Raises:
        SourceError: the folder is missing, or nobody has confirmed that it may be read, or the sync
            would leave nothing of a collection that holds something, or nothing of what is to be
            added can be read.
        UsageError: the collection cannot be made, or one of its globs can match nothing.
        CollectionNotFound: it was removed meanwhile.
    """
    is_addition = not isinstance(collection, dict)
    registration = None if isinstance(collection, dict) else collection
    plan = _plan(database, collection)
    may_become_empty = may_become_empty or force
    with opened(permitted(database, plan.row)) as source:
        manifested = with_manifest(registration, plan.row, source.manifest)
        if manifested is not None and manifested is not registration:
            registration, plan = manifested, _plan(database, manifested)
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
        _tell(report, registration, row, source, skipped, has_files=bool(files))
        preparation = Preparation.of(row)
        has_files = bool(files)
        shard = preparation.options.get("shard")
        files = [file for file in files if is_of_shard(file.path, shard)]
        may_become_empty |= has_files and not files
        # What could not be listed may still be there: it is neither deleted nor taken for renamed.
        gone_paths = stored.keys() - {file.path for file in files}
        gone = {p: stored[p] for p in stored if p in gone_paths and not is_inside(p, unreadable)}
        files = _available(files, preparation, report, source.root)
        run = SyncRun(
            *(database, row, registration, stored, gone, force, report, source),
            *(preparation.read, note, MAX_BATCH_DOCUMENTS if reads_ahead else 1),
        )
        to_read = [file for file in files if not run.seems_unchanged(file)] if reads_ahead else []
        hashes = {path: row["content_hash"] for path, row in stored.items()}
        with (
            database.batch(),
            preparation.converter,
            reading(preparation, to_read, hashes) as run.read,
        ):
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
                    raise nothing_readable(row, report, has_files=has_files)
                if gone and len(gone) == len(stored) and not may_become_empty:
                    raise would_empty(row, len(stored), is_addition=is_addition)
            secret = [path for path in run.secret if path in stored]
            _take_back(database, row["collection_id"], secret, report)
            if plan.is_stored and run.has_changed_nothing:
                with database.read() as connection:
                    report.total = count_documents(connection, row["collection_id"])
            else:
                progress("reading", 0, 1)  # what was read: links, words, space; no bar stands still
                run.finish()
            has_changed = bool(report.added or report.updated or report.removed or report.renamed)
            if collection_id := row["collection_id"] or run.collection["collection_id"]:
                look_again(database, collection_id, source.root, has_changed=has_changed)
            if report.added or report.updated or report.removed:
                tidy(database)
            if report.updated or report.removed:
                close_ranks(database)
            progress("reading", 1, 1)
    if withheld or run.secret:
        report.tell(f"never stored: {secret_names([*withheld, *run.secret])}")
    return report


def _tell(
    report: SyncReport,
    registration: Registration | None,
    row: Row,
    source: Opened,
    skipped: Sequence[str],
    *,
    has_files: bool,
) -> None:
    skipped = [path for path in skipped if not is_open_database(source.root / path)]
    if registration is not None and skipped:
        report.tell(other_formats(skipped))
    if not has_files and (globs := shown_globs(row)):
        report.tell(f"no file matches{globs}; `kb add` with other globs replaces them")
    for text in (*source.notices, *source.manifest.notices):
        report.tell(text)


def _available(
    files: Sequence[SourceFile], preparation: Preparation, report: SyncReport, root: Path
) -> list[SourceFile]:
    """The files in available formats; one notice counts the others."""
    kinds = [preparation.format_of(file) for file in files]
    missing = Counter(kind.name for kind in kinds if kind is not None and not kind.is_available)
    if missing and root.is_file():
        raise SourceError(
            f"{root.name} is a file in the format {next(iter(missing))}: `{INSTALL}` adds its "
            "reading",
            path=str(root),
        )
    if missing:
        names = ", ".join(f"{count} {name}" for name, count in most_first(missing))
        report.tell(f"left out: {names}; `{INSTALL}` adds these formats")
    return [
        file for file, kind in zip(files, kinds, strict=True) if kind is None or kind.is_available
    ]


def _plan(database: Database, collection: Row | Registration) -> Plan:
    if isinstance(collection, dict):
        return Plan(collection)
    with database.read() as connection:
        return collection.plan(connection)


def _stored(database: Database, plan: Plan, report: SyncReport) -> dict[str, Row]:
    """Stored files by path, without secret ones, which earlier versions of kb let in."""
    collection_id = plan.row["collection_id"]
    with database.read() as connection:
        rows = stored_files(connection, collection_id)
        keys = stored_private_keys(connection, collection_id)
    stored = {row["path"]: row for row in rows}
    secret = [path for path in stored if is_secret(path)]
    _take_back(database, collection_id, secret, report)
    for path in stored.keys() if plan.reads_anew else keys:
        # No time is right for it: it is read again, and a key is taken back if it still is one.
        stored[path] = {**stored[path], "file_size": None}
        if plan.reads_anew:
            stored[path]["content_hash"] = b""
    return {path: row for path, row in stored.items() if path not in secret}


def _take_back(
    database: Database, collection_id: int, paths: Sequence[str], report: SyncReport
) -> None:
    """Delete stored secret files with every trace."""
    if not paths:
        return
    with database.write() as connection:
        rows = [stored_file(connection, collection_id, path) for path in paths]
        # None where another process was first.
        erase_documents(connection, [row["document_id"] for row in rows if row is not None])
    problem = write_anew(database)
    message = f"removed, since it is never stored: {secret_names(paths)}"
    report.tell(f"{message}; {problem}" if problem else message)
    report.removed += len(paths)
