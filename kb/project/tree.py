"""The project's files as the tools see them: on disk if they are there, else as stored; what a
source file is: its language, its imports, its module and its role in the project; and what it shows
of another: signatures and documentation of the names it uses.

A knowledge base file that was copied elsewhere has no files beside it, but the texts of all its
documents. Paths are the same in both: a stored document is named by its place in the project. All
but the imports of a source file depends on its path alone, by `kb/assets/source-files.toml`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from heapq import merge
from itertools import chain, groupby
from pathlib import Path
from posixpath import splitext
from typing import NamedTuple

from kb.disk.globs import composed
from kb.disk.grep import SKIPPED_FOLDERS, grep, grep_texts
from kb.disk.inside import is_hidden_from_tools, read_inside
from kb.disk.open_databases import is_open_database
from kb.disk.secret import begins_as_private_key
from kb.errors import FileNotFound, ImportsFailed, PermissionDenied, SourceError
from kb.formats.source_code import (
    Node,
    Siblings,
    TooComplexError,
    deadline,
    declared,
    first_line,
    grammar_of,
    name_of,
    parse_source,
    text,
)
from kb.project.imports import imported_files
from kb.project.imports.project import Project, SyntaxProblem
from kb.project.in_use import ProjectInUse
from kb.results.code import DISK, STORED, CodeMatches
from kb.sources.address import document_file, is_remote, kept, local
from kb.store.connection import Connection, Row
from kb.store.contents import document_paths, paths_at_both_ends, stored_text
from kb.store.database import Database
from kb.text.assets import asset
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


class Tables(NamedTuple):
    """The contents of `kb/assets/source-files.toml`."""

    languages: dict[str, str]  # by ending
    roles: list[tuple[str, re.Pattern[str]]]
    containers: set[str]
    tests: set[str]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A file of the project that another one imports."""

    path: str  # relative to the root
    type: str = "import"
    level: int = 1


def imports(root: Path, path: str) -> list[Dependency]:
    """The project's files that a file imports, in order of appearance.

    Leaves out what is not part of the project: the standard library, installed packages, names that
    lead nowhere. A file in a language without grammar imports nothing.

    Raises:
        ImportsFailed: the file is binary, or a syntax error may hide imports.
        PermissionDenied, FileNotFound, FileTooLarge: as `read_inside`.
    """
    file = read_inside(root, path)
    try:
        source = decode(file.data).text.encode()
        names = imported_files(Project(root), file.path, language_of(file.path), source)
        # An image or a font is imported too, but nobody can read it.
        return [Dependency(name) for name in names if language_of(name)]
    except (SyntaxProblem, NoTextError) as error:
        raise ImportsFailed("Failed to parse imports", path=path, details=str(error)) from error


def language_of(path: str) -> str:
    """The language of a file by its name, in lower case; "" if unknown."""
    name = posixpath.basename(path)
    if language := asset("source-files")["names"].get(name):
        return str(language)
    if name.startswith(("Dockerfile.", "Makefile.")):
        return name.split(".")[0].lower()
    _, dot, ending = name.rpartition(".")
    return _tables().languages.get(ending.lower(), "") if dot else ""


def module_of(path: str) -> str:
    """The part of the project that a file belongs to: its nearest folder with a telling name, or
    "root". Folders such as `src` or `lib` tell nothing, and test folders only if there is no
    other."""
    folders = [folder for folder in posixpath.dirname(path).split("/") if folder not in ("", ".")]
    telling = [folder for folder in folders if folder.lower() not in _tables().containers]
    subjects = [folder for folder in telling if folder.lower() not in _tables().tests]
    return next(reversed(subjects or telling or ["root"]))


def role_of(path: str) -> str:
    """What a file is for, by the first that fits of: test, config, documentation, types (only
    declarations), migration, style, data, entry (where a program or package starts), script; "core"
    for all other code."""
    path = posixpath.normpath(path)
    for role, rule in _tables().roles:
        if rule.search(path):
            return role
    return "core"


@cache
def _tables() -> Tables:
    stored = asset("source-files")
    languages = {e: name for name, endings in stored["endings"].items() for e in endings.split()}
    roles = [(role, re.compile(rule, re.VERBOSE)) for role, rule in stored["roles"].items()]
    return Tables(languages, roles, set(stored["containers"].split()), set(stored["tests"].split()))


SHORT_FILE = 400  # characters: cutting would save nothing
MAX_DATA_LINES = 12  # of a struct, an enumeration, a constant
MAX_DEPTH = 8  # of nodes that just wrap definitions
MAX_LINE = 300  # characters

_WORD = re.compile(r"[^\W\d]\w*")
_RENAMED = re.compile(r"(\w+)\s+as\s+(\w+)")
_CONSTRUCTORS = frozenset({"__init__", "constructor", "initialize", "new"})
# Bodies that are left out or searched; every other body is data, such as a struct's fields.
_CODE = frozenset({"block", "statement_block", "compound_statement", "constructor_body"})
_CONTAINERS = frozenset({"class_body", "declaration_list"})
_VALUES = frozenset(
    {
        *("assignment", "variable_declarator", "const_spec", "var_spec", "const_item"),
        *("static_item", "preproc_def", "preproc_function_def", "declaration", "type_definition"),
        *("function_signature", "field_declaration"),
    }
)


def names_in(shown: str, whole: str) -> set[str]:
    """The names that some lines of a file use, and the originals of those that it renames."""
    names = set(_WORD.findall(shown))
    return names | {name for name, alias in _RENAMED.findall(whole) if alias in names}


def signatures(path: str, source: str, names: set[str]) -> str:
    """The signatures of those names that a file defines, or the lines that re-export them. Of a
    class come its fields, its constructor and those methods that are named too. A short file
    comes whole; one without a grammar shows nothing."""
    grammar = grammar_of(splitext(path)[1].lower())
    if len(source) <= SHORT_FILE or grammar is None:
        return source if len(source) <= SHORT_FILE else ""
    language, symbols = grammar
    until = deadline()
    try:
        tree = parse_source(language, source.encode(), until)
        outline = _Outline(symbols, names, until)
        root = tree.root_node
        shown = set(chain(*outline.lines(root, 0))) or _handed_on(root, names, path)
    except (TooComplexError, RecursionError):
        return ""
    lines = source.split("\n")
    parts = [
        "\n".join(
            line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
            for line in (lines[number - 1] for _, number in run)
        )
        for _, run in groupby(enumerate(sorted(shown)), lambda pair: pair[1] - pair[0])
    ]
    return "\n…\n".join(parts)


class _Outline:
    def __init__(self, symbols: frozenset[str], names: set[str], until: float) -> None:
        self._symbols = symbols
        self._names = names
        self._until = until
        self._siblings = Siblings()

    def lines(self, node: Node, depth: int) -> Iterator[range]:
        for child in node.named_children:
            if time.thread_time() > self._until:
                raise TooComplexError("too many definitions")
            if child.type == "impl_item":  # Rust: methods, if their type is named
                if self._names.intersection(_WORD.findall(name_of(child)[len("impl") :])):
                    yield from self.lines(child, depth + 1)
            elif (name := self._defined(child)) == "":
                if depth < MAX_DEPTH and child.type not in _CODE - {"block"}:
                    yield from self.lines(child, depth + 1)
            elif name in self._names or name in _CONSTRUCTORS or _is_default(child):
                yield from self._definition(child, depth)

    def _defined(self, node: Node) -> str:
        """The name that a node defines, or ""."""
        name = name_of(node) if node.type in self._symbols else ""
        if not name and node.type in _VALUES:
            fields = (node.child_by_field_name(field) for field in ("left", "name"))
            name = text(
                next(filter(None, fields), declared(node.child_by_field_name("declarator")))
            )
        return name.rpartition(".")[2]

    def _definition(self, node: Node, depth: int) -> Iterator[range]:
        start, end = first_line(node, self._siblings), node.end_point.row + 1
        value = node.child_by_field_name("value")
        body = (node if value is None else value).child_by_field_name("body")
        is_class = "class" in node.type or "module" in node.type
        if body is None or not (is_class or body.type in _CODE | _CONTAINERS | {"body_statement"}):
            yield range(start, min(end, node.start_point.row + MAX_DATA_LINES) + 1)
            return
        row = body.start_point.row
        begins_line = (
            row > node.start_point.row
            and body.prev_sibling is not None
            and body.prev_sibling.end_point.row < row
        )
        last = row if begins_line else row + 1
        first = body.named_children[:1]
        if first and first[0].type == "expression_statement" and text(first[0])[-1:] in "\"'":
            last = first[0].end_point.row + 1
        yield range(start, last + 1)
        if is_class or body.type in _CONTAINERS:
            fields = [
                child for child in body.named_children if child.type == "expression_statement"
            ]
            for field in fields[:MAX_DATA_LINES]:
                if ":" in text(field) or "=" in text(field):
                    yield range(field.start_point.row + 1, field.end_point.row + 2)
            yield from self.lines(body, depth + 1)


def _is_default(node: Node) -> bool:
    """Whether this is a JavaScript default export, which the importing file names as it likes."""
    parent = node.parent
    return parent is not None and any(child.type == "default" for child in parent.children)


def _handed_on(root: Node, names: set[str], path: str) -> set[int]:
    """The lines that re-export one of the names, or all, from where another file defines them."""
    lines: set[int] = set()
    for node in root.named_children:
        source = text(node)
        if node.type.startswith("import"):
            hands_on = path.endswith("__init__.py")
        elif node.type == "use_declaration":
            hands_on = source.startswith("pub")
        else:
            hands_on = node.type == "export_statement" and bool(node.child_by_field_name("source"))
        if hands_on and ("*" in source or names.intersection(_WORD.findall(source))):
            lines.update(range(node.start_point.row + 1, node.end_point.row + 2))
    return lines
