"""Go: the packages of the project's own modules.

An import names a package, which is all files of a folder. So it resolves to each of them but
the tests.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node
from kb.project.imports.project import Project, folders_above
from kb.project.imports.syntax import Grammar, Import, literal

__all__ = ["GRAMMAR", "resolve"]


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files of the imported packages."""
    modules = _modules(project, path)
    for item in imports:
        # The longest name first: one module may lie inside another.
        for name in sorted(modules, key=len, reverse=True):
            if item.target == name or item.target.startswith(name + "/"):
                folder = posixpath.join(modules[name], item.target[len(name) :].lstrip("/"))
                files = project.files_in(posixpath.normpath(folder), ".go")
                yield from (file for file in files if not file.endswith("_test.go"))
                break


def _modules(project: Project, path: str) -> dict[str, str]:
    """The folders of modules by name: around the file, of its workspace, replaced, or beside it."""
    modules: dict[str, str] = {}
    for folder in folders_above(path):
        own = project.text(posixpath.join(folder, "go.mod"))
        work = project.text(posixpath.join(folder, "go.work"))
        for name in _module_name(own):
            modules.setdefault(name, folder)
        for name, place in _REPLACED.findall(own + work):
            modules.setdefault(name, posixpath.join(folder, place))
        for place in _USED.findall(work):
            member = posixpath.join(folder, place)
            for name in _module_name(project.text(posixpath.join(member, "go.mod"))):
                modules.setdefault(name, member)
    for folder in project.packages_beside(path, "go.mod"):
        for name in _module_name(project.text(posixpath.join(folder, "go.mod"))):
            modules.setdefault(name, folder)
    return modules


# Blanks of one line only, and names in one piece: linear on any file.
_REPLACED = re.compile(r"^[ \t]*+(?:replace[ \t]++)?(\S++).*=>[ \t]*+(\.\S*+)", re.MULTILINE)
_USED = re.compile(r"^[ \t]*+(?:use[ \t]++)?(\.\S*+)[ \t]*+$", re.MULTILINE)
_MODULE = re.compile(r'^[ \t]*+module[ \t]++"?([^\s"]++)', re.MULTILINE)


def _module_name(go_mod: str) -> list[str]:
    return _MODULE.findall(go_mod)


def _read(node: Node) -> Iterator[Import]:
    pending = [node]
    while pending:
        node = pending.pop()
        if node.type == "import_spec":
            yield Import(literal(node.child_by_field_name("path")))
        pending.extend(reversed(node.named_children))


GRAMMAR = Grammar(
    package="tree_sitter_go",
    function="language",
    nodes=frozenset({"import_declaration"}),
    read=_read,
    keywords=frozenset({"import"}),
)
