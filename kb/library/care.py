"""The state of the files, copies of them, and collections that move between files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kb.errors import FileError, UsageError
from kb.ingest.copying import copy_file, cut_file, move_collection
from kb.ingest.reach import unconfirmed
from kb.ingest.report import Progress, no_progress
from kb.library.workspace import Workspace
from kb.results.care import (
    CollectionStatus,
    Copied,
    CutFile,
    FileStatus,
    MovedCollection,
    MovedCollections,
    Packed,
    ReadFile,
    ToolCalls,
)
from kb.results.findings import HINT, Finding
from kb.search.files import SearchedFile
from kb.store.access_tokens import count_tokens
from kb.store.collections import ALL_KINDS, all_collections
from kb.store.connection import Connection, Row
from kb.store.contents import documents_of_collections, passages_of_collections, sizes
from kb.store.database import Database
from kb.store.health import quick
from kb.store.opening import make_file
from kb.store.sessions import call_statistics, file_scores, logged_calls
from kb.store.vectors import current_model
from kb.store.write_ahead_log import is_replicated, log_finding
from kb.text.counted import as_texts, sized

TOP_FILES = 10
Named = str | os.PathLike[str]


class Care(Workspace):
    def status(self) -> list[FileStatus]:
        """What each file holds, what waits in it and what is wrong; the writable one is first."""
        return [_status(database) for database, *_ in self._look()]

    def health(self, *, full: bool = False, progress: Progress = no_progress) -> list[Finding]:
        """What is sound in the files, what is broken, and how to mend it.

        Args:
            full: read all of a large file, not only samples.
        """
        from kb.library.health import look_at_open  # here: it loads what looks at collections

        return [
            finding
            for database, *_ in self._look(skips_unreadable=True)
            for finding in look_at_open(database, is_offered=False, full=full, progress=progress)
        ]

    def tool_calls(self) -> list[ToolCalls]:
        """How often, how well and how fast the tools were called."""
        logged, _ = self.ask_all(_logged_calls)
        return [ToolCalls.from_dict(row) for row in call_statistics(logged.values())]

    def copy(self, destination: Named, *, share: bool = False) -> Copied:
        """Write a clean, compact copy of the file; into a folder by its own name. Shards are copied
        together, into a folder that is made if need be.

        Args:
            share: leave out what was asked, read and learned, and paths of this machine.

        Raises:
            FileError: the destination exists or cannot be written.
        """
        destination = Path(destination).expanduser()
        shards = [base.database for base in self.shards_here]
        if len(shards) == 1:
            if destination.is_dir():
                destination /= self.database.path.name
            return copy_file(self.database, destination, share=share)
        for path in (destination / database.path.name for database in shards):
            if destination.is_file() or path.exists():
                raise FileError(f"{path} exists already, or its folder is a file: name another")
        try:
            destination.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make {destination}: {error.strerror}") from error
        copies = [copy_file(each, destination / each.path.name, share=share) for each in shards]
        return Copied(
            copy=str(destination),
            bytes=sum(copy.bytes for copy in copies),
            without_source=copies[0].without_source,  # the first has every collection
        )

    def split(
        self, file: Named, names: Sequence[str], *, progress: Progress = no_progress
    ) -> MovedCollections:
        """Move collections with their vectors into another file, which is made if need be.

        Raises:
            FileError, UsageError: the other file cannot be written, or is this one.
        """
        path = _another_file(self, file)
        if not path.exists() and not path.parent.is_dir():
            raise FileError(f"the folder {path.parent} does not exist: make it first")
        with self.database.read() as connection:  # before a file is made
            stored = [
                self.names.collection(connection, n, ALL_KINDS)["name"] for n in as_texts(names)
            ]
        if not path.exists():
            make_file(path, self.database.path)
        moved: dict[str, MovedCollection] = {}
        with Database(path) as target:
            for base in reversed(self.shards_here):  # the first, which has all names, last
                with base.database.read() as connection:
                    rows = {row["name"]: row for row in all_collections(connection)}
                for row in (rows[name] for name in stored if name in rows):
                    part = move_collection(base.database, target, row, progress)
                    documents = part.documents
                    if part.collection in moved:
                        documents += moved[part.collection].documents
                    moved[part.collection] = replace(part, documents=documents)
        return MovedCollections(moved=[moved[name] for name in stored], file=str(path))

    def merge(
        self, file: Named, names: Sequence[str] = (), *, progress: Progress = no_progress
    ) -> MovedCollections:
        """Move collections of another file, by default all, with their vectors into this one.

        Raises:
            FileError, UsageError: the other file cannot be read or written, or is this one.
        """
        with Database(_another_file(self, file), create=False) as source:
            with source.read() as connection:
                rows = (
                    [self.names.collection(connection, name, ALL_KINDS) for name in as_texts(names)]
                    if names
                    else [
                        row
                        for row in all_collections(connection)
                        if row["project_id"] is None and (row["has_documents"] or row["source"])
                    ]
                )
            moved = [move_collection(source, self.database, row, progress) for row in rows]
        return MovedCollections(moved=moved, file=str(self.database.path))

    def cut(self, folder: Named, size: int, *, progress: Progress = no_progress) -> CutFile:
        """Write the file's documents into shards of about so many bytes; the file stays as it is.

        Args:
            folder: a new one for the shards, which are opened and synced together.

        Raises:
            FileError: the folder is there already or cannot be written, or the file was written to.
            UsageError: the file is no larger than that, or no collection has a source.
        """
        path = self.database.path
        if len(self.shards_here) > 1:
            raise UsageError(f"these are shards: cut one by itself, such as `--db {path}`")
        if (count := math.ceil(path.stat().st_size / size)) < 2:
            raise UsageError(f"{path} is no larger than that ({sized(path.stat().st_size)})")
        folder = Path(folder).expanduser()
        return CutFile(shards=cut_file(self.database, folder, count, progress))

    @staticmethod
    def pack(
        folder: Named,
        bundle: Named,
        *,
        name: str = "",
        version: str = "",
        description: str = "",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Packed:
        """Write a folder's documents as a bundle that `add` takes, with a manifest.

        Args:
            name: by default the folder's or its manifest's.

        Raises:
            SourceError: there is no document, or the bundle cannot be written.
        """
        from kb.ingest.packing import pack_folder  # here: nothing else needs it

        return pack_folder(
            Path(folder).expanduser().resolve(),
            Path(bundle).expanduser(),
            include=as_texts(include),
            exclude=as_texts(exclude),
            facts={"name": name, "version": version, "description": description},
        )


def _logged_calls(_: SearchedFile, connection: Connection) -> list[Row]:
    return logged_calls(connection)


def _status(database: Database) -> FileStatus:
    path = Path(database.path)
    with database.read() as connection:
        files = [file for file in file_scores(connection) if not file.is_archived]
        counts = sizes(connection)
        model = current_model(connection)
        rows = all_collections(connection)
        passages = passages_of_collections(connection)
        tokens = count_tokens(connection)
        problems = quick(connection)
        documents = documents_of_collections(connection)
    if (waiting := log_finding(database)) is not None:
        problems.append(waiting)
    problems += [
        Finding("sources", HINT, f"not read until you say so: {r.what}", f"`kb trust {r.name}`")
        for r in unconfirmed(database, rows)
    ]
    return FileStatus(
        file=str(path),
        bytes=path.stat().st_size,
        **{key: count for key, count in counts.items() if key != "collections"},
        waiting=counts["chunks"] - counts["embedded_chunks"],
        tokens=dict(tokens) or None,
        problems=problems,
        replication=_replication(path),
        model=model["name"] if model else None,
        width=model["width"] if model else None,
        collections=[
            CollectionStatus(
                collection=row["name"],
                kind=row["kind"],
                documents=documents[row["collection_id"]],
                passages=passages.get(row["collection_id"], (0, 0))[0],
                embedded=passages.get(row["collection_id"], (0, 0))[1],
                source=row["source"],
                synced=row["synced_at"],
            )
            for row in rows
        ],
        top_files=[
            ReadFile(
                path=file.path,
                score=round(file.score, 4),
                reads=file.access_count,
                last_read=file.last_accessed_at,
            )
            for file in files[:TOP_FILES]
        ],
    )


def _replication(path: Path) -> dict[str, Any] | None:
    if not is_replicated(path):
        return None
    from kb.store.replication.replicate import replication_state

    if (state := replication_state(path)) is None:
        return None
    remedy = f"; {state.remedy()}" if state.is_behind else ""
    return {**state.as_dict(), "message": f"{state.sentence()}{remedy}"}


def _another_file(base: Workspace, file: Named) -> Path:
    path = Path(file).expanduser()
    if path.exists() and path.samefile(base.database.path):
        raise UsageError(f"{path} is the file itself: name another one")
    return path
