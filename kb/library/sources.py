"""Sources as people name them, and those that this user lets a file read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb.disk.git import git_branch
from kb.errors import SourceError, UsageError
from kb.formats.convert.formats import INSTALL_OCR, can_recognise
from kb.ingest.reach import confirm, unconfirmed
from kb.ingest.registration import SourceRegistration
from kb.ingest.report import require_source
from kb.library.workspace import Workspace
from kb.results.findings import Reach
from kb.sources.address import (
    git_address,
    is_git,
    is_remote,
    is_web,
    name_of,
    typed_path,
    web_address,
)
from kb.sources.folder import SecretFile, SourceFile, read, secret_root
from kb.store.collections import ALL_KINDS, Names, all_collections, shard_of
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.store.mark import Mark
from kb.store.projects import all_projects
from kb.text.file_names import on_disk, storable


def register(
    database: Database,
    source: str,
    *,
    name: str | None = None,
    kind: str | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    description: str | None = None,
    settings: dict[str, Any] | None = None,
) -> SourceRegistration:
    """What becomes of a source that is added; its sync stores it.

    Raises:
        SourceError: there is no such folder.
        UsageError: the name is blank or taken, the source secret, an address malformed, or text
            recognition not installed.
    """
    if settings and not can_recognise(settings.get("ocr", "")):
        raise UsageError(f"text recognition needs what `{INSTALL_OCR}` adds")
    if name is not None and not name.strip():
        raise UsageError("a collection's name must not be blank")
    stored, called = stored_source(source)
    registration = SourceRegistration(
        stored, called, name, kind, include or (), exclude or (), description, settings or {}
    )
    with database.read() as connection:
        registration.plan(connection)
    is_private = bool(settings and settings.get("allow_private"))
    database.mark.confirm_source(stored, is_private=is_private)
    return registration


def stored_source(source: str) -> tuple[str, str]:
    """How a source is stored, and its default name."""
    if is_git(source):
        repository = git_address(source)
        return repository.stored, repository.name
    if is_web(source):
        address = web_address(source)
        return address, name_of(address)
    return _local_source(source)


def _local_source(source: str) -> tuple[str, str]:
    if is_remote(source):
        raise UsageError(f"{source} is not a kind of source: see `kb add --help`")
    root = typed_path(source)
    if not (root.is_dir() or root.is_file()):
        raise SourceError(f"there is no folder or file {source}", path=str(root))
    if why := secret_root(root) or _private_key(root):
        raise UsageError(f"{source} is not added, since secrets are never stored: {why}")
    # A link keeps the name that was typed, not that of its target.
    typed = Path(source).expanduser().name
    name = root.name if typed in ("", ".", "..") or source.lower().startswith("file:") else typed
    return storable(root), storable(name)


def _private_key(root: Path) -> str:
    if root.is_file():
        try:
            read(SourceFile(root.name, root, 0, 0))
        except SecretFile:
            return "it is a private key"
        except SourceError:
            pass  # the sync reports it
    return ""


def rows_to_sync(workspace: Workspace, names: Sequence[str]) -> list[Row]:
    """The named collections, or all that have a source. Raises CollectionNotFound, or UsageError if
    one has no source, or belongs to another branch of a project than the one checked out."""
    with workspace.database.read() as connection:
        if names:
            rows = [workspace.names.collection(connection, name, ALL_KINDS) for name in names]
            for row in rows:
                _require_branch(connection, row)
        else:
            # A project's external docs are synced by its activation, on its branch at that time.
            rows = [
                row
                for row in workspace.names.collections(connection, ALL_KINDS)
                if row["source"] and row["project_id"] is None
            ]
    for row in rows:
        require_source(row)
    return rows


def _require_branch(connection: Connection, row: Row) -> None:
    """Refuse to fill a project's external docs with the files of another branch."""
    for project in all_projects(connection):
        root, branch = Path(on_disk(project["root"])), project["branch"]
        if project["project_id"] != row["project_id"] or not root.is_dir():
            continue
        if (checked_out := git_branch(root)) != branch:
            raise UsageError(
                f'the collection "{row["name"]}" holds the branch {branch}, and {checked_out} is '
                f"checked out in {root}: check out {branch}, or activate the project"
            )


def trust(files: Sequence[Path], names: Sequence[str]) -> list[Reach]:
    """Let the collections of a file, by default all, read their sources; returns these.

    Args:
        files: the file; of those behind it, the shards of a file that was cut count as well.
    """
    confirmed: dict[Reach, None] = {}
    for file in files:
        if not names and file == files[0]:
            Mark(file).confirm_file()  # before it is opened, which its tables may forbid
        with Database(file, create=False) as database:
            with database.read() as connection:
                if file != files[0] and shard_of(connection) is None:
                    continue
                rows = (
                    [Names({}).collection(connection, name, ALL_KINDS) for name in names]
                    if names
                    else all_collections(connection)
                )
            if not names:
                database.mark.confirm_file()
            reaches = unconfirmed(database, rows)
            confirm(database, reaches)
            confirmed.update(dict.fromkeys(reaches))
    return [*confirmed]
