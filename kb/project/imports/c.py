"""C and C++: includes, beside the file and in the folders where projects keep their headers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node
from kb.project.imports.project import Project, folders_above
from kb.project.imports.syntax import Grammar, Import

__all__ = ["CPP_GRAMMAR", "C_GRAMMAR", "resolve"]

_HEADER_FOLDERS = ("include", "inc")


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files that are included."""
    above = folders_above(path)
    header_folders = [posixpath.join(at, name) for at in above for name in _HEADER_FOLDERS]
    for name in _HEADER_FOLDERS:
        header_folders += [*project.folders_like(f"*/{name}"), *project.folders_like(f"*/*/{name}")]
    quoted = [*above, *(posixpath.join(at, "src") for at in above), *header_folders]
    for item in imports:
        # In angle brackets the compiler's own come first, and beside the file it does not look.
        folders = header_folders if item.kind == "system" else quoted
        yield project.first(posixpath.join(folder, item.target) for folder in folders)


def _read(node: Node) -> Iterator[Import]:
    """An include in angle brackets has the kind "system"."""
    if (named := _NAMED.match(_rest_of_line(node))) is None:
        return
    path = named["quoted"] or named["system"] or b""
    if path:
        kind = "system" if named["system"] else ""
        yield Import(path.decode("utf-8", "replace").replace("\\", "/"), kind=kind)


def _is_broken(token: Node) -> bool:
    """Whether what stands behind `#include` names neither a file nor a macro for one.

    By its line: among macros that puzzle the grammar it sees no strings any more.
    """
    return _NAMED.match(_rest_of_line(token)) is None


def _rest_of_line(token: Node) -> bytes:
    holder = token
    while holder.parent is not None and holder.end_byte - token.start_byte < LONGEST_LINE:
        holder = holder.parent
    at = token.end_byte - holder.start_byte
    return (holder.text or b"")[at : at + LONGEST_LINE].partition(b"\n")[0]


LONGEST_LINE = 1_000
_NAMED = re.compile(
    rb"""[ \t]*+(?:"(?P<quoted>[^"]+)"|<(?P<system>[^>]+)>|[A-Za-z_]\w*+(?![./\w]))"""
)
_INCLUDE = "#include"
_NODES = frozenset(
    {_INCLUDE}
)  # the token: its node is not there wherever macros puzzle the grammar

# Macros make correct files look wrong, so no other error counts: an include is one line of its own.
C_GRAMMAR, CPP_GRAMMAR = (
    Grammar(
        package,
        "language",
        _NODES,
        _read,
        keywords=frozenset({_INCLUDE}),
        is_broken=_is_broken,
        has_head=False,
    )
    for package in ("tree_sitter_c", "tree_sitter_cpp")
)
