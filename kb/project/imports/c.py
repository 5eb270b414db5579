"""C and C++: includes, beside the file and in the folders where projects keep their headers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node, text
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
    path = node.child_by_field_name("path")
    if path is not None and path.type in ("string_literal", "system_lib_string"):
        kind = "system" if path.type == "system_lib_string" else ""
        yield Import(text(path)[1:-1].replace("\\", "/"), kind=kind)


_NODES = frozenset({"preproc_include"})

# No keywords: macros make correct files look wrong, and an include is one line of its own.
C_GRAMMAR = Grammar("tree_sitter_c", "language", _NODES, _read)
CPP_GRAMMAR = Grammar("tree_sitter_cpp", "language", _NODES, _read)
