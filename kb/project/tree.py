"""The project's files as the tools see them: on disk if they are there, else as stored.

A knowledge base file that was copied elsewhere has no files beside it, but the texts of all its
documents. Paths are the same in both: a stored document is named by its place in the project.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path

from kb.disk.globs import composed
from kb.disk.grep import SKIPPED_FOLDERS, grep, grep_texts
from kb.disk.inside import is_hidden_from_tools, read_inside
from kb.disk.open_databases import is_open_database
from kb.disk.secret import begins_as_private_key
from kb.errors import FileNotFound, PermissionDenied, SourceError
from kb.project.in_use import ProjectInUse
from kb.project.source_files import language_of
from kb.results.code import DISK, STORED, CodeMatches
from kb.sources.address import document_file, is_remote, kept, local
from kb.store.connection import Connection, Row
from kb.store.contents import document_paths, paths_at_both_ends, stored_text
from kb.store.database import Database
from kb.text.decode import NoTextError, decode
from kb.text.nearest import nearest
from kb.text.times import stored_time

NOT_HERE = "The folder of the documents is not here:"


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of one file."""

    path: str
    text: str  # line ends as "\n"
    size: int  # bytes
    modified: str  # UTC; "" if unknown
    origin: str  # DISK or STORED
    notice: str = ""

    @property
    def language(self) -> str:
        return language_of(self.path)


def files_are_here(project: ProjectInUse) -> bool:
    """Whether the project's folder contains any file but the knowledge base itself."""
    if not project.knowledge.has_project:
        return False
    project.knowledge.beside.databases()  # open from here on, so they are no files of the project
    for folder, folders, names in os.walk(project.root):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED_FOLDERS and not is_hidden_from_tools(name)
        ]
        files = (Path(folder, name) for name in names if not is_hidden_from_tools(name))
        if any(not is_open_database(file) for file in files):
            return True
    return False


def documents_are_here(project: ProjectInUse, connection: Connection) -> bool:
    """Whether the documents are on this machine, and not just in the knowledge base file: any of
    some documents of each collection from inside the project, or failing that from elsewhere, is
    in its place. Without such documents, whether the project's folder contains files."""
    root = Path(os.path.realpath(project.root))
    rows = [
        row
        for row in project.knowledge.names.collections(connection)
        if row["source"] and not is_remote(row["source"])
    ]
    inside = [row for row in rows if local(row["source"]).is_relative_to(root)]
    for sample in (inside, [row for row in rows if row not in inside]):
        has_documents = False
        for row in sample:
            for path in paths_at_both_ends(connection, row["collection_id"]):
                # Documents of a bundle are wherever the bundle is.
                places = local(row["source"]), document_file(row["source"], path)
                if any(map(os.path.isfile, places)):
                    return files_are_here(project)
                has_documents = True
        if has_documents:
            return False
    return files_are_here(project)


def read_text(project: ProjectInUse, path: str) -> TextFile:
    """A file of the project, from the disk or, if the documents are not here, as stored.

    Raises:
        PermissionDenied, FileNotFound, FileTooLarge: as `kb.disk.inside.read_inside`, or it is a
            private key.
        SourceError: it is binary.
    """
    try:
        if not project.knowledge.has_project:
            raise FileNotFound("File not found", path=path)
        file = read_inside(project.root, path)
    except FileNotFound as error:
        return _read_stored(project, path, error)
    try:
        text = decode(file.data).text
    except NoTextError as error:
        raise SourceError(f"Cannot show a binary file: {error}", path=path) from error
    if begins_as_private_key(text):
        raise PermissionDenied("Permission denied", path=path, reason="this is a private key")
    modified = stored_time(datetime.fromtimestamp(file.modified, UTC))
    return TextFile(file.path, text, len(file.data), modified, DISK)


def grep_project(
    project: ProjectInUse,
    pattern: str,
    file_pattern: str,
    case_sensitive: bool,
    limit: int,
    context_lines: int,
) -> CodeMatches:
    """Search the project's files.

    If the documents are not here, their stored texts are searched together with the files that are:
    of a project whose documents were moved away, the rest.

    Raises:
        InvalidPattern: the pattern is malformed or too large.
        UsageError: the glob can match nothing.
    """
    search = (pattern, file_pattern, case_sensitive, limit, context_lines)
    with contextlib.ExitStack() as reads:
        first, *others = _databases(project)
        connections = [reads.enter_context(first.read())]
        if documents_are_here(project, connections[0]):
            return grep(project.root, *search)
        connections += [reads.enter_context(database.read()) for database in others]
        texts = merge(
            *(_stored_texts(project, connection) for connection in connections),
            key=lambda text: text[0],
        )
        result = grep_texts(texts, *search)
    notice = f"{NOT_HERE} what is stored of them was searched."
    if not files_are_here(project):
        return replace(result, notice=notice)
    here = grep(project.root, *search)
    matches = sorted([*result, *here], key=lambda match: (match.file, match.line))
    return replace(
        result,
        matches=matches[:limit],
        total_matches=result.total_matches + here.total_matches,
        files_searched=result.files_searched + here.files_searched,
        truncated=result.truncated or here.truncated,
        notice=f"{notice[:-1]}, and the files that are.",
    )


def _databases(project: ProjectInUse) -> list[Database]:
    return [project.knowledge.database, *project.knowledge.beside.databases()]


def _stored_texts(project: ProjectInUse, connection: Connection) -> Iterator[tuple[str, str]]:
    """Path and text of every stored document that is not on disk, without hidden names."""
    root = str(project.root) if files_are_here(project) else ""
    for called, collection_id, path in sorted(_stored_paths(project, connection)):
        if is_hidden_from_tools(called) or (root and os.path.exists(f"{root}/{called}")):
            continue
        if stored := stored_text(connection, collection_id, path):
            yield called, stored[0]


def _stored_paths(project: ProjectInUse, connection: Connection) -> Iterator[tuple[str, int, str]]:
    """Every stored document: its path in the project, its collection's row id, its own id."""
    for row in project.knowledge.names.collections(connection):
        place = _place(row, connection.folder)
        for path in document_paths(connection, row["collection_id"]):
            yield _path_at(place, path), row["collection_id"], path


def _place(row: Row, folder: str) -> str:
    """Where in the project a collection's documents are; its name if the file does not say."""
    place = kept(row["source"], folder)
    if place == ".":
        return ""
    return place.removeprefix("./") if place.startswith("./") else str(row["name"])


def _path_at(place: str, path: str) -> str:
    # A collection of one file is that file.
    if posixpath.basename(place) == path:
        return place
    return f"{place}/{path}" if place else path


def _read_stored(project: ProjectInUse, path: str, error: FileNotFound) -> TextFile:
    """The stored document that a path names: by its place in the project, by its collection's name,
    or by itself. Raises `error` if the documents are here, else FileNotFound with near names."""
    with project.knowledge.database.read() as connection:
        if documents_are_here(project, connection):
            raise error
    names: list[str] = []
    for database in _databases(project):
        with database.read() as connection:
            if (stored := _stored_at(project, connection, posixpath.normpath(path))) is None:
                paths = [called for called, _, _ in _stored_paths(project, connection)]
                names += paths
                same = next((name for name in paths if composed(name) == composed(path)), "")
                stored = _stored_at(project, connection, same)
        if stored is not None:
            text, size = stored
            return TextFile(path, text, size, "", STORED, f"{NOT_HERE} this is its stored text.")
    near = nearest(path, names)
    raise FileNotFound(
        "File not found",
        path=path,
        notice=f"{NOT_HERE} what is stored can be read.",
        **({"suggestions": near} if near else {}),
    ) from error


def _stored_at(project: ProjectInUse, connection: Connection, path: str) -> tuple[str, int] | None:
    rows = project.knowledge.names.collections(connection)
    for places in (
        [_place(row, connection.folder) for row in rows],
        [row["name"] for row in rows],
        ["" for _ in rows],
    ):
        for row, place in zip(rows, places, strict=True):
            if stored := stored_text(connection, row["collection_id"], _inner(place, path)):
                return stored
    return None


def _inner(place: str, path: str) -> str:
    """Inverts `_path_at`; "" for a path elsewhere."""
    if place in ("", path):
        return posixpath.basename(path) if place else path
    return path.removeprefix(f"{place}/") if path.startswith(f"{place}/") else ""
