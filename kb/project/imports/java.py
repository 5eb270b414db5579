"""Java: classes by the folder that their package is in, below any of the source roots."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from kb.formats.syntax_tree import Node, text
from kb.project.imports.project import Project
from kb.project.imports.syntax import Grammar, Import

__all__ = ["GRAMMAR", "resolve"]

# Of this project and, in one with several parts, of each part.
_SOURCE_ROOTS = ("src/main/java", "*/src/main/java", "*/*/src/main/java", "src/test/java", "src")


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files of the imported classes, and those of a package taken in as a whole."""
    imports = list(imports)
    packages = [item.target for item in imports if item.kind == "package"]
    roots = _source_roots(project, path, packages)
    for item in imports:
        if item.kind == "package":
            continue
        parts = item.target.removesuffix(".*").split(".")
        if item.target.endswith(".*"):
            package = posixpath.join(*parts)
            files = (project.files_in(posixpath.join(root, package), ".java") for root in roots)
            whole = next((found for found in files if found), [])
            if whole:
                yield from whole
                continue
        yield _class_file(project, roots, parts)


def _class_file(project: Project, roots: Sequence[str], parts: Sequence[str]) -> str:
    # The name may go on behind the class, to one inside it or to a static member.
    for length in range(len(parts), max(len(parts) - 3, 0), -1):
        name = posixpath.join(*parts[:length]) + ".java"
        found = project.first(posixpath.join(root, name) for root in roots)
        if found:
            return found
    return ""


def _source_roots(project: Project, path: str, packages: Sequence[str]) -> list[str]:
    roots = []
    folder = posixpath.dirname(path)
    for package in packages:
        inside = package.replace(".", "/")
        if folder == inside or folder.endswith("/" + inside):
            own = folder[: -len(inside)].rstrip("/")
            roots += [own, own.replace("src/test/", "src/main/")]
    for pattern in _SOURCE_ROOTS:
        roots += project.folders_like(pattern)
    return list(dict.fromkeys([*roots, ""]))


def _read(node: Node) -> Iterator[Import]:
    """The file's own package has the kind "package", a wildcard ends in ".*"."""
    names = [child for child in node.named_children if child.type.endswith("identifier")]
    every = any(child.type == "asterisk" for child in node.named_children)
    kind = "package" if node.type == "package_declaration" else ""
    if names:
        yield Import(text(names[-1]) + (".*" if every else ""), kind=kind)


GRAMMAR = Grammar(
    package="tree_sitter_java",
    function="language",
    nodes=frozenset({"package_declaration", "import_declaration"}),
    read=_read,
    keywords=frozenset({"import"}),
)
