"""What import resolvers ask: the files of a project, by path relative to the root, and the imports
of a source file as written there, by tree-sitter.

Nothing here reads or names a file that `read_file` would refuse. A file with a mistake in a
function's body still says what it imports. So a syntax error counts only where it may hide an
import: among the imports at the top of the file, or in a statement that begins like one.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kb.disk.inside import is_hidden_from_tools, read_inside, resolve_inside
from kb.errors import KbError
from kb.formats.source_code import Node, TooComplexError, Tree, deadline, parse_source, text, walk
from kb.text.decode import NoTextError, decode
from kb.text.file_names import on_disk, storable

MOST_BESIDE = 200  # packages of a repository that are looked at
_DEPTH_OF_STARS = 3  # levels that "**" descends in a list of workspace folders


class Project:
    """One look at a project: answers are cached, so make a new one for each question."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))
        self._files: dict[str, str] = {}
        self._folders: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}

    def file(self, path: str) -> str:
        """The path of a readable file, links followed and ".." resolved; "" if there is none."""
        path = posixpath.normpath(path)
        if path not in self._files:
            self._files[path] = self._find(path)
        return self._files[path]

    def first(self, paths: Iterable[str]) -> str:
        """The first that exists, or ""."""
        return next(filter(None, map(self.file, paths)), "")

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self._root / on_disk(path))

    def files_in(self, folder: str, suffix: str) -> list[str]:
        """The files of one folder, sorted."""
        names = [name for name in self._names(folder) if name.endswith(suffix)]
        return [*filter(None, (self.file(posixpath.join(folder, name)) for name in names))]

    def folders_like(self, pattern: str) -> list[str]:
        """The folders that fit a pattern such as `packages/*`, sorted."""
        folders = [""]
        for part in posixpath.normpath(pattern).split("/"):
            if part == "**":
                folders = [below for folder in folders for below in self._below(folder)]
            elif part != ".":
                folders = [
                    posixpath.join(folder, name)
                    for folder in folders
                    for name in (self._names(folder) if set(part) & set("*?[") else [part])
                    if fnmatch.fnmatchcase(name, part)
                ]
                folders = [folder for folder in folders if self._is_open_folder(folder)]
        return folders

    def packages_beside(self, path: str, manifest: str) -> list[str]:
        """The folders of packages beside that of a file, as in a repository of several packages: in
        the same folder (`packages/a`, `packages/b`) or one of its neighbours (`apps/b`). A
        `manifest` file makes a folder a package's.
        """
        above = folders_above(path)
        package = next((at for at in above if at and self.file(posixpath.join(at, manifest))), "")
        if not package:
            return []
        group, _, _ = package.rpartition("/")
        patterns = [posixpath.join(group, "*")]
        if group:
            patterns.append(posixpath.join(group.rpartition("/")[0], "*", "*"))
        folders = dict.fromkeys(at for pattern in patterns for at in self.folders_like(pattern))
        beside = [at for at in folders if self.file(posixpath.join(at, manifest)) and at != package]
        return beside[:MOST_BESIDE]

    def text(self, path: str) -> str:
        """The text of a configuration file; "" if there is none that can be read."""
        path = posixpath.normpath(path)
        if path not in self._texts:
            try:
                self._texts[path] = decode(read_inside(self._root, path).data).text
            except (KbError, NoTextError):
                self._texts[path] = ""
        return self._texts[path]

    def toml(self, path: str) -> dict[str, Any]:
        """A TOML file; empty if there is none or it is malformed."""
        try:
            return tomllib.loads(self.text(path))
        except (ValueError, RecursionError):
            return {}

    def _find(self, path: str) -> str:
        if path.startswith(("../", "/")):
            return ""
        # Most do not exist. A name that is not ASCII may have another normal form on disk.
        if path.isascii() and not os.path.isfile(self._root / on_disk(path)):
            return ""
        try:
            return storable(resolve_inside(self._root, path).relative_to(self._root).as_posix())
        except KbError:
            return ""

    def _names(self, folder: str) -> list[str]:
        if folder not in self._folders:
            try:
                names = os.listdir(self._root / on_disk(folder))
                self._folders[folder] = sorted(map(storable, names))
            except (OSError, ValueError):
                self._folders[folder] = []
        return self._folders[folder]

    def _is_open_folder(self, folder: str) -> bool:
        place = self._root / on_disk(folder)
        if ".." in folder.split("/"):
            return False
        # Path's own methods raise if a name is too long, as it may be in a manifest.
        is_folder = os.path.isdir(place) and not os.path.islink(place)
        return is_folder and not is_hidden_from_tools(folder)

    def _below(self, folder: str, depth: int = _DEPTH_OF_STARS) -> Iterator[str]:
        yield folder
        for name in self._names(folder) if depth else ():
            inner = posixpath.join(folder, name)
            if self._is_open_folder(inner):
                yield from self._below(inner, depth - 1)


def folders_above(path: str) -> list[str]:
    """The folders around a file, the nearest first, the root "" last."""
    folders = [posixpath.dirname(path)]
    while folders[-1]:
        folders.append(posixpath.dirname(folders[-1]))
    return folders


def table(value: Any, *keys: str) -> dict[str, Any]:
    """A table inside a parsed configuration file; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def strings(value: Any) -> list[str]:
    """The strings of a list in a parsed configuration file."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


_TOO_COMPLEX = "Too complex to parse"


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file, in the words of its language."""

    target: str  # "..package.module", "./module.js", "crate::a::b", "java.util.List", "x.h" ...
    names: tuple[str, ...] = ()  # what is taken from it (Python); the modules around it (Rust)
    kind: str = ""  # distinguishes a language's ways of importing; see its module


@dataclass(frozen=True, slots=True)
class Grammar:
    """How to find the imports of a language."""

    nodes: frozenset[str]  # the types of the nodes that may import
    read: Callable[[Node], Iterator[Import]]  # what such a node imports
    # Tokens that may begin an import, by type. With none, syntax errors never count.
    keywords: frozenset[str] = frozenset()
    # Whether such a token begins an import that cannot be read; by default one in an error.
    is_broken: Callable[[Node], bool] | None = None
    # Whether any error at the top of the file counts.
    has_head: bool = True


class SyntaxProblem(ValueError):
    """Why the imports of a file are unknown."""


def read_imports(language: str, grammar: Grammar, source: bytes) -> list[Import]:
    """The imports of a UTF-8 source in order, those inside functions and conditions too. Raises
    SyntaxProblem if a syntax error may hide imports, or the source is too complex."""
    until = deadline()
    try:
        tree = parse_source(language, source, until)
        survey = _survey(tree, grammar, until)
        imports_by_node: dict[int, list[Import]] = {}
        for node in survey.candidates:
            if time.thread_time() > until:
                raise SyntaxProblem(_TOO_COMPLEX)
            imports_by_node[node.id] = list(grammar.read(node))
    except (RecursionError, TooComplexError) as error:
        raise SyntaxProblem(_TOO_COMPLEX) from error
    importing = {identity for identity, imports in imports_by_node.items() if imports}
    if not grammar.has_head:
        survey.errors.clear()
    line = _line_of_problem(tree.root_node, survey, importing) if grammar.keywords else 0
    if line:
        raise SyntaxProblem(f"Syntax error at line {line}")
    return [item for imports in imports_by_node.values() for item in imports]


def literal(node: Node | None) -> str:
    """The value of a plain string; "" for one that is composed at run time."""
    if node is None or len(node.named_children) != 1:
        return ""
    part = node.named_children[0]
    return text(part) if part.type.endswith(("fragment", "content")) else ""


@dataclass(slots=True)
class _Survey:
    candidates: list[Node] = field(default_factory=list)  # nodes of types that may import
    errors: list[Node] = field(default_factory=list)  # what the parser could not read
    broken: list[Node] = field(default_factory=list)  # keywords of import statements with errors


def _survey(tree: Tree, grammar: Grammar, until: float) -> _Survey:
    survey = _Survey()
    has_errors = tree.root_node.has_error
    for node in walk(tree, until):
        if node.type in grammar.nodes:
            survey.candidates.append(node)
        if has_errors:
            if node.is_error:
                survey.errors.append(node)
            elif node.type in grammar.keywords and node.parent is not None:
                statement = node.parent
                if grammar.is_broken is not None:
                    is_broken = grammar.is_broken(node)
                else:
                    is_broken = statement.is_error or (
                        statement.has_error and statement.type in grammar.nodes
                    )
                if is_broken:
                    survey.broken.append(node)
    return survey


# Statements that may stand before and between the imports at the top of a file.
_BEFORE_IMPORTS = frozenset(
    {
        *("expression_statement", "future_import_statement", "hash_bang_line"),
        *("package_clause", "package_declaration", "attribute_item", "inner_attribute_item"),
        *(";", "\n"),
    }
)


def _line_of_problem(root: Node, survey: _Survey, importing: set[int]) -> int:
    """The line of the first error that may hide an import, or 0."""
    if not root.has_error:
        return 0
    in_head: list[Node] = []
    errors = {node.id for node in survey.errors}
    waiting: list[Node] = []
    for node in root.children:
        if node.id in errors:
            waiting.append(node)
        elif node.id in importing:
            in_head += waiting  # errors before an import that is still at the top
            waiting = []
        elif not (node.is_extra or node.type in _BEFORE_IMPORTS):
            break
    return min((node.start_point.row + 1 for node in (*in_head, *survey.broken)), default=0)
