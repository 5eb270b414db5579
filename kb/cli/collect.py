"""`kb add`, `kb sync`, `kb remove`, `kb reembed`: what goes into the file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kb.cli import render, workers
from kb.cli.exit_codes import FAILURE
from kb.cli.progress import progress
from kb.cli.soundness import problems
from kb.cli.sync_results import say_problems, show_sync, summary
from kb.errors import CollectionNotFound, EmbeddingError, KbError, SourceError, UsageError
from kb.ingest.embed import THREADS, EmbedReport, embed_pending, reembed
from kb.ingest.engine import Engine
from kb.ingest.progress import Progress
from kb.ingest.refused import require_source
from kb.ingest.registration import MovedSource, SourceRegistration
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.sources.address import (
    git_address,
    is_git,
    is_remote,
    is_web,
    local,
    name_of,
    typed_path,
    web_address,
)
from kb.sources.folder import SecretFile, SourceFile, read, secret_root
from kb.store.chunks import count_waiting
from kb.store.collections import find_collection_id
from kb.store.connection import Row
from kb.store.contents import count_documents
from kb.store.database import Database
from kb.store.documents import delete_collection, delete_document
from kb.store.embeddings import delete_unused_vectors
from kb.store.ids import WHOLE_FILE, ChunkRange, collection_range
from kb.store.names import ALL_KINDS
from kb.text.counted import counted
from kb.text.file_names import storable
from kb.tools.session import Session


def add(kb: Session, options: argparse.Namespace) -> int:
    """Register a folder and sync it."""
    registration = register(
        kb.database,
        options.source,
        name=options.name,
        kind=options.kind,
        include=options.include,
        exclude=options.exclude,
        description=options.description,
        settings=_settings(options),
    )
    if options.model and not options.no_embed:
        kb.model.embedder().embed(["width"])  # refused before anything is read
    embedded, error_text = EmbedReport(), ""
    with progress(options) as show:
        report = sync_collection(kb.database, registration, reads_ahead=True, progress=show)
        if report.is_stored:
            embedded, error_text = _embed(kb, options, show, _range(kb, report))
    notice = _better_model(kb) if embedded.embedded else ""
    show_sync(kb, options, [report], embedded, error_text, notice)
    if not report.is_stored:
        return 1
    return FAILURE if problems(kb.database) else 0


def sync(kb: Session, options: argparse.Namespace) -> int:
    """Sync the named collections, or all that have a source."""
    with kb.database.read() as connection:
        if options.names:
            rows = [kb.names.collection(connection, name) for name in options.names]
        else:
            # A project's external docs are synced by its activation, on the branch of then.
            rows = [
                row
                for row in kb.names.collections(connection, ALL_KINDS)
                if row["source"] and row["project_id"] is None
            ]
        waiting = count_waiting(connection)
    for row in rows:
        require_source(row)
    if not rows and not waiting:
        raise UsageError("there is nothing to sync: add a folder with `kb add FOLDER`")
    return _sync_all(kb, rows, options)


def move(kb: Session, options: argparse.Namespace) -> int:
    """Say where the documents of a collection are now, and sync it."""
    with kb.database.read() as connection:
        row = kb.names.collection(connection, options.name, ALL_KINDS)
    stored, _ = _stored_source(options.folder)
    with progress(options) as show:
        moved = MovedSource(row["name"], stored)
        report = sync_collection(kb.database, moved, reads_ahead=True, progress=show)
        embedded, error_text = _embed(kb, options, show, _range(kb, report))
    show_sync(kb, options, [report], embedded, error_text)
    return FAILURE if problems(kb.database) else 0


def remove(kb: Session, options: argparse.Namespace) -> int:
    """Remove a collection, or one of its documents; the source folder stays as it is."""
    if options.document is not None:
        return _remove_document(kb, options)
    with kb.database.read() as connection:
        row = kb.names.collection(connection, options.name, ALL_KINDS)
        count = count_documents(connection, row["collection_id"])
    if count and not row["source"] and not options.force:
        raise UsageError(
            f'the documents of "{row["name"]}" ({count:,}) are nowhere but in this file, so they '
            "were not removed: keep a copy with `kb copy` first; `kb remove --help` says how to go "
            "on"
        )
    with kb.database.write() as connection:
        delete_collection(connection, row["collection_id"])
    if options.json:
        render.print_json({"removed": row["name"], "documents": count})
    elif not options.quiet:
        print(f"removed {row['name']} with {counted(count, 'document')}")
    return 0


def _remove_document(kb: Session, options: argparse.Namespace) -> int:
    """Remove one document that came by a call: others would be back with the next sync."""
    with kb.database.read() as connection:
        row = kb.names.collection(connection, options.name, ALL_KINDS)
        if row["kind"] == "discoveries":
            raise UsageError("a discovery is taken back with `kb forget ID`")
        if row["source"]:
            raise UsageError(
                f'"{row["name"]}" is read from {row["source"]}, so the document would be back with '
                "the next sync: remove its file, or leave it out with `kb add SOURCE --exclude`"
            )
        document = kb.names.document(connection, row, options.document, row["name"])
    with kb.database.write() as connection:
        delete_document(connection, document["document_id"])
        delete_unused_vectors(connection)
    if options.json:
        render.print_json({"removed": document["path"], "collection": row["name"]})
    elif not options.quiet:
        print(f"removed {document['path']} from {row['name']}")
    return 0


def reembed_all(kb: Session, options: argparse.Namespace) -> int:
    """Embed everything with the wanted model."""
    embedder = kb.model.make_embedder(options.model or kb.model.suited_model())
    said: list[str] = []
    with workers.engine(options, said) as engine, progress(options) as show:
        report = reembed(kb.model, embedder, progress=show, engine=engine)
    if options.json:
        result = {"model": embedder.name, "embedded": report.embedded, "reused": report.reused}
        render.print_json(result | ({"notice": " ".join(said)} if said else {}))
    elif not options.quiet:
        embedded = counted(report.embedded, "passage")
        print(f"{embedder.name}: {embedded} embedded, {report.reused:,} reused")
    return 0


def register(
    database: Database,
    source: str,
    *,
    name: str | None = None,
    kind: str | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    description: str | None = None,
    settings: dict[str, Any] | None = None,
) -> SourceRegistration:
    """What becomes of a source that is added; its sync stores it.

    Raises:
        SourceError: there is no such folder.
        UsageError: the name is blank or belongs to something else, the source is secret, or an
            address is malformed.
    """
    if name is not None and not name.strip():
        raise UsageError("a collection's name must not be blank")
    stored, called = _stored_source(source)
    registration = SourceRegistration(
        stored, called, name, kind, include or (), exclude or (), description, settings or {}
    )
    with database.read() as connection:
        registration.plan(connection)
    return registration


def _stored_source(source: str) -> tuple[str, str]:
    """How what somebody typed is stored, and what it is called."""
    if is_git(source):
        return _git_source(source)
    if is_web(source):
        address = web_address(source)
        return address, name_of(address)
    return _local_source(source)


def _git_source(source: str) -> tuple[str, str]:
    """How a repository is stored, and what it is called."""
    address = git_address(source)
    return address.stored, address.name


def _local_source(source: str) -> tuple[str, str]:
    """How a folder or file is stored, and what it is called."""
    if is_remote(source):
        raise UsageError(f"{source} is no kind of source: see `kb add --help`")
    root = typed_path(source)
    if not (root.is_dir() or root.is_file()):
        raise SourceError(f"there is no folder or file {source}", path=str(root))
    if why := secret_root(root) or _private_key(root):
        raise UsageError(f"{source} is not added, since secrets are never stored: {why}")
    return storable(root), storable(root.name)


def _private_key(root: Path) -> str:
    if root.is_file():
        try:
            read(SourceFile(root.name, root, 0, 0))
        except SecretFile:
            return "it is a private key"
        except SourceError:
            pass  # the sync tells what is wrong with it
    return ""


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `kb add` that are kept as settings of the collection."""
    settings: dict[str, Any] = {}
    if options.holds:
        settings["source"] = options.holds
    if options.allow_private:
        settings["allow_private"] = True
    if options.url_field:
        settings["url_field"] = options.url_field
    if options.published_at:
        pairs = [
            text.rpartition("=") if "=" in text else (text, "", "") for text in options.published_at
        ]
        settings["published"] = [[address, folder.strip("/")] for address, _, folder in pairs]
    return settings


def sync_for_search(
    kb: Session, registration: SourceRegistration, options: argparse.Namespace
) -> SyncReport:
    """Sync the text before a search: say what is wrong, but search whatever is there."""
    with progress(options) as show:
        report = sync_collection(kb.database, registration, reads_ahead=True, progress=show)
    say_problems(report, options)
    if not options.quiet and not options.json:
        render.say(summary(report))
    return report


def embed_for_search(kb: Session, report: SyncReport, options: argparse.Namespace) -> None:
    """Embed what was synced before a search; an interruption leaves the rest for another time."""
    try:
        with progress(options) as show:
            error_text = _embed(kb, options, show, _range(kb, report))[1]
        if error_text:
            render.say(error_text)
    except KeyboardInterrupt:
        render.say("interrupted; searching with what is there, `kb sync` does the rest")


def _sync_all(kb: Session, rows: list[Row], options: argparse.Namespace) -> int:
    reports: list[SyncReport] = []
    failure = False
    said: list[str] = []
    with workers.engine(options, said) as engine, progress(options) as show:
        for row in rows:
            try:
                report = sync_collection(
                    kb.database, row, force=options.force, reads_ahead=True, progress=show
                )
                reports.append(report)
            except (SourceError, CollectionNotFound) as error:
                # One missing folder must not keep the others from being synced.
                failure = True
                reports.append(_failed(row, error))
        embedded, error_text = _embed(kb, options, show, WHOLE_FILE, engine)
    show_sync(kb, options, reports, embedded, error_text, said=said)
    # What was said at the beginning of the command: syncing alone does not make it well.
    return FAILURE if failure or problems(kb.database) else 0


def _range(kb: Session, report: SyncReport) -> ChunkRange:
    """The chunks of the collection that was synced."""
    with kb.database.read() as connection:
        return collection_range(find_collection_id(connection, report.collection) or 0)


def _embed(
    kb: Session,
    options: argparse.Namespace,
    show: Progress,
    within: ChunkRange,
    engine: Engine = THREADS,
) -> tuple[EmbedReport, str]:
    """Embed what waits in a range of the file, if wanted; why that could not be done."""
    if options.no_embed:
        return EmbedReport(), ""
    try:
        return embed_pending(kb.model, progress=show, within=within, engine=engine), ""
    except EmbeddingError as error:
        return EmbedReport(), error.message


def _better_model(kb: Session) -> str:
    """What to do when the documents have other languages than those the file began with."""
    if not (suited := kb.model.better_model()):
        return ""
    return (
        "the languages of the documents suit another model than the file's "
        f"{kb.model.model_name()}: `kb reembed --model {suited}` finds more"
    )


def _failed(row: Row, error: KbError) -> SyncReport:
    is_gone = not is_remote(row["source"]) and not local(row["source"]).exists()
    hint = f" `kb move {row['name']} FOLDER` says where it is now." if is_gone else ""
    report = SyncReport(row["name"])
    report.fail("", error.message + hint)
    return report
