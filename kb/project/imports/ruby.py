"""Ruby: files required by their place, or by name on the load path."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node, text
from kb.project.imports.project import Project, folders_above
from kb.project.imports.syntax import Grammar, Import, literal

__all__ = ["GRAMMAR", "resolve"]

_LOAD_PATH = ("lib", "app", "test", "spec")
_METHODS = ("require", "require_relative", "require_dependency", "load", "autoload")


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files that are required."""
    above = folders_above(path)
    load_path = [posixpath.join(folder, name) for folder in above for name in _LOAD_PATH]
    for item in imports:
        is_relative = item.kind == "relative" or item.target.startswith(("./", "../"))
        folders = above[:1] if is_relative else [*load_path, ""]
        names = [item.target] if item.target.endswith(".rb") else [item.target + ".rb"]
        yield project.first(posixpath.join(folder, name) for folder in folders for name in names)


def _read(node: Node) -> Iterator[Import]:
    """`require_relative` has the kind "relative"."""
    method = text(node.child_by_field_name("method"))
    arguments = node.child_by_field_name("arguments")
    is_own_method = node.child_by_field_name("receiver") is None
    if method in _METHODS and is_own_method and arguments is not None and arguments.named_children:
        target = literal(arguments.named_children[-1])
        if target:
            yield Import(target, kind="relative" if method == "require_relative" else "")


def _is_broken(word: Node) -> bool:
    """Whether it is `require` with something behind it, on its line, that cannot be read."""
    if text(word) not in ("require", "require_relative"):
        return False
    statement, after = word.parent, word.next_sibling
    if statement is not None and (
        statement.is_error or (statement.has_error and statement.type == "call")
    ):
        return True
    is_near = after is not None and after.start_point.row == word.start_point.row
    return is_near and after is not None and after.is_error


GRAMMAR = Grammar(
    package="tree_sitter_ruby",
    function="language",
    nodes=frozenset({"call"}),
    read=_read,
    keywords=frozenset({"identifier"}),  # to the grammar they are methods like others
    is_broken=_is_broken,
)
