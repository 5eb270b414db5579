"""Run the write flow: sources -> parse -> chunk -> store. Skip what is unchanged.

Text first: each document is one transaction and found by keywords at once. `kb/ingest/embed.py`
gives the chunks their vectors afterwards. Other processes may sync the same folder meanwhile, so
what a transaction does depends on what the file holds then, not on what it held when the sync
began.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kb.disk.secret import is_secret
from kb.errors import DocumentTooComplex, KbError, SourceError, UsageError
from kb.formats.archive import walk_archive
from kb.formats.convert.formats import INSTALL
from kb.formats.convert.process import Converter
from kb.formats.parse import accepts
from kb.ingest.embed import EmbedReport, Progress, embed_pending, no_progress, reembed
from kb.ingest.forget import erase_documents, write_anew
from kb.ingest.prepare import Preparation, trusted_time
from kb.sources.folder import SecretFile, SourceFile, walk
from kb.store.database import Connection, Database, Row, utc_now
from kb.store.documents import NewDocument, delete_document, store_document
from kb.text.file_names import on_disk
from kb.text.secrets import secrets_in

__all__ = [
    "EmbedReport",
    "Progress",
    "SyncReport",
    "embed_pending",
    "no_progress",
    "reembed",
    "require_source",
    "sync_collection",
]

SECRETS_SHOWN = 5  # paths or lines in a notice

logger = logging.getLogger("kb.sync")


@dataclass(slots=True)
class SyncReport:
    """What a sync of one collection did, in documents, and what it could not do."""

    collection: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    total: int = 0
    renamed: int = 0  # counted under `updated` too
    errors: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _filter(collection: Row) -> str:
    """What a collection takes and leaves out, to be said where nothing was found."""
    only, never = json.loads(collection["include"]), json.loads(collection["exclude"])
    parts = [
        f"{word} {', '.join(globs)}" for word, globs in (("only", only), ("not", never)) if globs
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def sync_collection(
    database: Database, collection: Row, *, force: bool = False, progress: Progress = no_progress
) -> SyncReport:
    """Bring a collection's documents in line with its folder; no embedding yet.

    Args:
        collection: a row of `collections`.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.

    A document that cannot be read, or not in reasonable time, is an error of the report.

    Raises:
        SourceError: the folder is missing, or empty while the collection is not.
    """
    report = SyncReport(collection["name"])
    collection_id = collection["collection_id"]
    unreadable: list[str] = []

    def note(path: str, message: str) -> None:
        report.errors.append({"path": path, "message": message})
        unreadable.append(path)

    # Before the walk: what another process adds after it is not taken for gone.
    stored = _without_secrets(database, collection_id, report)
    withheld: list[str] = []
    root, include = Path(on_disk(collection["source"])), json.loads(collection["include"])
    exclude = json.loads(collection["exclude"])
    is_archive = collection["kind"] == "archive"
    if is_archive:
        found_files = walk_archive(root, include, exclude, report=note, withhold=withheld.append)
    else:
        found_files = walk(
            root, include, exclude, report=note, withhold=withheld.append, accepts=accepts
        )
    files = list(found_files)
    if stored and not files and not force:
        raise SourceError(
            f"{collection['source']} holds no matching file any more{_filter(collection)}, but the "
            f'collection "{collection["name"]}" has {len(stored)} documents: nothing was changed; '
            "use --force if it shall become empty",
            path=collection["source"],
        )
    if not files and _filter(collection):
        message = f"no file matches{_filter(collection)}; `kb add` with other globs replaces them"
        report.notices.append({"path": "", "message": message})
    found = {file.path for file in files}
    gone = {path: row for path, row in stored.items() if path not in found}
    # What could not be listed may still be there: it is neither deleted nor taken for renamed.
    gone = {path: row for path, row in gone.items() if not _is_inside(path, unreadable)}
    preparation = Preparation(
        Converter(),
        json.loads(collection["options"]),
        is_archive,
        by_name=bool(include) or root.is_file(),
    )
    files = _without_unavailable(files, preparation, report, root)
    run = _Run(database, collection_id, stored, gone, force, report, preparation)
    with database.batch(), preparation.converter:
        for done, file in enumerate(files):
            progress("documents", done, len(files))
            try:
                run.sync_file(file)
            except SecretFile:
                run.secret.append(file.path)
            except (SourceError, DocumentTooComplex) as error:
                note(file.path, error.message)
            except KbError:
                raise  # the knowledge base itself: it would fail for the next file too
            except RecursionError:
                note(file.path, "is nested too deeply to be read as a document")
            except Exception as error:
                logger.warning("%s", file.path, exc_info=True)
                note(file.path, f"cannot be stored: {type(error).__name__}: {error}")
        _erase_secrets(database, collection_id, [p for p in run.secret if p in stored], report)
        run.finish()
    if withheld or run.secret:
        message = f"never stored: {_secrets([*withheld, *run.secret])}"
        report.notices.append({"path": "", "message": message})
    progress("documents", len(files), len(files))
    return report


def _without_secrets(database: Database, collection_id: int, report: SyncReport) -> dict[str, Row]:
    """The stored files by path; those that an earlier version of kb let in are deleted first."""
    with database.read() as connection:
        rows = connection.rows("stored_files", collection_id=collection_id)
        keys = {
            row[0] for row in connection.tuples("stored_private_keys", collection_id=collection_id)
        }
    stored = {row["path"]: row for row in rows}
    for path in keys & stored.keys():
        # No time is right for it: it is read again, and deleted if it still is a key.
        stored[path] = {**stored[path], "file_size": None, "modified_ns": None}
    secret = [path for path in stored if is_secret(path)]
    _erase_secrets(database, collection_id, secret, report)
    return {path: row for path, row in stored.items() if path not in secret}


def _erase_secrets(
    database: Database, collection_id: int, paths: Sequence[str], report: SyncReport
) -> None:
    """Take back what is stored of secret files, with every trace."""
    if not paths:
        return
    with database.write() as connection:
        rows = [
            connection.row("stored_file", collection_id=collection_id, path=path) for path in paths
        ]
        erase_documents(connection, [row["document_id"] for row in rows if row is not None])
    report.removed += len(paths)
    message = f"removed, since it is never stored: {_secrets(paths)}"
    if notice := write_anew(database):
        message += f"; {notice}"
    report.notices.append({"path": "", "message": message})


def _secrets(paths: Sequence[str]) -> str:
    some = ", ".join(sorted(paths)[:SECRETS_SHOWN])
    more = f" and {len(paths) - SECRETS_SHOWN} more" if len(paths) > SECRETS_SHOWN else ""
    return f"{some}{more} (secret by name, or a private key)"


def _without_unavailable(
    files: Sequence[SourceFile], preparation: Preparation, report: SyncReport, root: Path
) -> list[SourceFile]:
    """The files that can be read with what is installed; the others are told in one line.

    Raises:
        SourceError: the collection is a single file that cannot.
    """
    kept: list[SourceFile] = []
    left_out: Counter[str] = Counter()
    for file in files:
        kind = preparation.format_of(file.path)
        if kind is None or kind.is_available:
            kept.append(file)
        else:
            left_out[kind.name] += 1
            missing = kind
    if left_out and root.is_file():
        raise SourceError(
            f"{root.name} is a file in the format {missing.name}: `{INSTALL}` adds its reading",
            path=str(root),
        )
    if left_out:
        names = ", ".join(f"{count} {name}" for name, count in left_out.most_common())
        message = f"left out: {names}; `{INSTALL}` adds these formats"
        report.notices.append({"path": "", "message": message})
    return kept


@dataclass(slots=True)
class _Run:
    """One sync under way."""

    database: Database
    collection_id: int
    stored: dict[str, Row]  # by path, as it was at the start
    gone: dict[str, Row]  # by path: not in the folder any more; loses what was only renamed
    force: bool
    report: SyncReport
    preparation: Preparation
    secret: list[str] = field(default_factory=list)  # paths that turned out to be private keys
    _touched: list[dict[str, Any]] = field(default_factory=list)
    _gone_paths: dict[bytes, list[str]] = field(default_factory=dict)  # by content hash

    def __post_init__(self) -> None:
        for path, row in self.gone.items():
            self._gone_paths.setdefault(row["content_hash"], []).append(path)

    def sync_file(self, file: SourceFile) -> None:
        """Store one file if it changed.

        Raises:
            SourceError: it cannot be read.
        """
        known = self.stored.get(file.path)
        stamp = (known["file_size"], known["modified_ns"]) if known else None
        if stamp == (file.size, file.modified_ns) and not self.force:
            self.report.unchanged += 1
            return
        source = self.preparation.read(file)
        if known is not None and known["content_hash"] == source.content_hash:
            self.report.unchanged += 1
            new_stamp = (file.size, trusted_time(file))
            if stamp != new_stamp:
                size, modified_ns = new_stamp
                key = known["document_id"]
                self._touched.append(
                    {"document_id": key, "file_size": size, "modified_ns": modified_ns}
                )
            return
        new = source.prepare()
        for text in filter(None, (source.notice, *new.parsed.notices, _tokens(new.text))):
            self.report.notices.append({"path": file.path, "message": text})
        with self.database.write() as connection:
            self._store(connection, new)

    def finish(self) -> None:
        """Delete what is gone and what nothing uses any more."""
        for path, row in self.gone.items():
            with self.database.write() as connection:
                now = connection.row("stored_file", collection_id=self.collection_id, path=path)
                # Another process may have deleted it, or stored it anew since it came back.
                if now is not None and now["content_hash"] == row["content_hash"]:
                    delete_document(connection, now["document_id"])
                    self.report.removed += 1
        with self.database.write() as connection:
            connection.run_many("touch_document", self._touched)
            connection.run("delete_unused_vectors")
            self.report.total = connection.value(
                "count_documents", collection_id=self.collection_id
            )
            connection.run(
                "finish_collection_sync", collection_id=self.collection_id, synced_at=utc_now()
            )

    def _store(self, connection: Connection, new: NewDocument) -> None:
        now = connection.row("stored_file", collection_id=self.collection_id, path=new.path)
        if now is not None and now["content_hash"] == new.content_hash:
            self.report.unchanged += 1  # another process was first
            return
        document_id = now["document_id"] if now else self._renamed(connection, new.content_hash)
        store_document(connection, self.collection_id, new, document_id)
        if document_id is None:
            self.report.added += 1
        else:
            self.report.updated += 1
            self.report.renamed += now is None

    def _renamed(self, connection: Connection, content_hash: bytes) -> int | None:
        """The document with the same bytes whose path is gone: it keeps its id and vectors."""
        paths = self._gone_paths.get(content_hash, [])
        while paths:
            path = paths.pop()
            now = connection.row("stored_file", collection_id=self.collection_id, path=path)
            if now is not None and now["content_hash"] == content_hash:
                del self.gone[path]
                return int(now["document_id"])
        return None


def _tokens(text: str) -> str:
    """What to say of a document that shows what looks like secrets: it is stored all the same."""
    found = [f"line {secret.line} ({secret.kind})" for secret in secrets_in(text)]
    some = ", ".join(found[:SECRETS_SHOWN])
    more = f" and {len(found) - SECRETS_SHOWN} more" if len(found) > SECRETS_SHOWN else ""
    return f"stored, though it seems to hold a secret: {some}{more}" if found else ""


def require_source(collection: Row) -> None:
    """Refuse to sync what has no source.

    Raises:
        UsageError: the collection is filled by tool calls.
    """
    if not collection["source"]:
        raise UsageError(
            f'the collection "{collection["name"]}" is filled by tool calls and has no source to '
            "sync from"
        )


def _is_inside(path: str, places: Sequence[str]) -> bool:
    """Whether a path is one of these places or below one; "" and "." are the root."""
    return any(place in ("", ".", path) or path.startswith(f"{place}/") for place in places)
