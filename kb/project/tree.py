"""The project's files as the tools see them: on disk where the tree is, else as stored.

A knowledge base file that was copied elsewhere has no tree beside it, but the texts of all its
documents.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kb.disk.grep import GrepResult, grep, grep_texts
from kb.disk.inside import is_hidden_from_tools, read_inside
from kb.disk.secret import begins_as_private_key
from kb.errors import FileNotFound, PermissionDenied, SourceError
from kb.project.in_use import ProjectInUse
from kb.project.source_files import language_of
from kb.sources.address import is_remote, local
from kb.store.connection import Connection
from kb.store.contents import stored_text, texts_of_collection
from kb.store.database import Database
from kb.text.decode import NoTextError, decode
from kb.text.times import stored_time

__all__ = [
    "DISK",
    "STORED",
    "TextFile",
    "grep_project",
    "read_text",
    "stored_texts",
    "tree_is_here",
]

DISK, STORED = "disk", "stored"


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of one file."""

    path: str
    text: str  # line ends as "\n"
    size: int  # bytes
    modified: str  # UTC; "" when it is not known
    origin: str  # DISK or STORED

    @property
    def language(self) -> str:
        return language_of(self.path)


def tree_is_here(project: ProjectInUse, connection: Connection) -> bool:
    """Whether the project's folder is on this machine, and not only its knowledge base file.

    The file does not say where its project is, so this is told by the folders that collections
    come from: one of them is there, or there is none. Sources inside a project are kept relative
    to it. In the project's `.kb` folder, or where `--db` names another place, such a source tells
    of the present project even where it has been deleted; of a file that lies openly in the
    project's root it tells nothing, since those of a copy seem to lie beside the copy.
    """
    if not project.knowledge.has_project:
        return False
    rows = project.knowledge.names.collections(connection)
    sources = [
        local(row["source"]) for row in rows if row["source"] and not is_remote(row["source"])
    ]
    lies_openly = project.knowledge.database.path.parent == project.root
    return not sources or any(
        os.path.exists(source) or (not lies_openly and source.is_relative_to(project.root))
        for source in sources
    )


def read_text(project: ProjectInUse, path: str) -> TextFile:
    """A file of the project, from the disk or, where there is no tree, as stored.

    Raises:
        PermissionDenied: as `kb.disk.inside.read_inside`, or it is a private key.
        FileNotFound, FileTooLarge: as there.
        SourceError: it is binary.
    """
    try:
        if not project.knowledge.has_project:
            raise FileNotFound("File not found", path=path)
        file = read_inside(project.root, path)
    except FileNotFound:
        stored = _read_stored(project, path)
        if stored is None:
            raise
        return stored
    try:
        text = decode(file.data).text
    except NoTextError as error:
        raise SourceError(f"Cannot show a binary file: {error}", path=path) from error
    if begins_as_private_key(text):
        raise PermissionDenied("Permission denied", path=path, reason="this is a private key")
    modified = stored_time(datetime.fromtimestamp(file.modified, UTC))
    return TextFile(file.path, text, len(file.data), modified, DISK)


def stored_texts(project: ProjectInUse, connection: Connection) -> Iterator[tuple[str, str]]:
    """Path and text of every stored document, by path; hidden names are left out.

    Where there are several collections the path begins with the collection's name.
    """
    collections = project.knowledge.names.collections(connection)
    for row in collections:
        prefix = f"{row['name']}/" if len(collections) > 1 else ""
        for path, text in texts_of_collection(connection, row["collection_id"]):
            if not is_hidden_from_tools(path):
                yield prefix + path, text


def grep_project(
    project: ProjectInUse, pattern: str, file_pattern: str, case_sensitive: bool, limit: int
) -> tuple[GrepResult, str]:
    """Search the project's files, on disk where they are; where it was searched is told too.

    Raises:
        InvalidPattern: the pattern is malformed or too large.
        UsageError: a glob that can match nothing.
    """
    with contextlib.ExitStack() as reads:
        connection = reads.enter_context(project.knowledge.database.read())
        if not tree_is_here(project, connection):
            beside = [reads.enter_context(one.read()) for one in _beside(project)]
            texts = (pair for one in (connection, *beside) for pair in stored_texts(project, one))
            return grep_texts(texts, pattern, file_pattern, case_sensitive, limit), STORED
    return grep(project.root, pattern, file_pattern, case_sensitive, limit), DISK


def _beside(project: ProjectInUse) -> list[Database]:
    """The files that are read together with the project's own."""
    return project.knowledge.beside.databases()


def _read_stored(project: ProjectInUse, path: str) -> TextFile | None:
    """The stored document that a path names, by itself or after its collection's name."""
    with project.knowledge.database.read() as connection:
        if tree_is_here(project, connection):
            return None
    for database in (project.knowledge.database, *_beside(project)):
        with database.read() as connection:
            for row in project.knowledge.names.collections(connection):
                for inner in (path, path.removeprefix(f"{row['name']}/")):
                    found = stored_text(connection, row["collection_id"], inner)
                    if found is not None:
                        text, size = found
                        return TextFile(path, text, size, "", STORED)
    return None
