"""Python: packages, modules, relative imports, and the folders a project is imported from."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node, text
from kb.project.imports.project import Project, folders_above, strings, table
from kb.project.imports.syntax import Grammar, Import

__all__ = ["GRAMMAR", "resolve"]


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files of the imported modules; of `from a import b` the module `a.b` if there is one."""
    roots = _import_roots(project, path)
    for item in imports:
        module = item.target.lstrip(".")
        dots = len(item.target) - len(module)
        if dots:
            above = folders_above(path)
            bases = above[dots - 1 : dots]
        elif module.split(".")[0] in sys.stdlib_module_names:
            bases = roots[:1]  # where a module of the project really hides the library's
        else:
            bases = roots
        for base in bases:
            found = list(_files(project, posixpath.join(base, *module.split(".")), item.names))
            if found:
                yield from found
                break


def _files(project: Project, module: str, names: Iterable[str]) -> Iterator[str]:
    own = _module_file(project, module.rstrip("/"))
    taken = [_module_file(project, posixpath.join(module, name)) or own for name in names]
    yield from (found for found in taken or [own] if found)


def _module_file(project: Project, module: str) -> str:
    # In the order in which Python looks; stubs for what has no source.
    return project.first(
        module + end for end in ("/__init__.py", ".py", "/__init__.pyi", ".pyi") if module
    )


def _import_roots(project: Project, path: str) -> list[str]:
    """Where absolute imports may start: first the folder of the file's outermost package."""
    above = folders_above(path)
    while len(above) > 1 and project.first([f"{above[0]}/__init__.py", f"{above[0]}/__init__.pyi"]):
        above.pop(0)
    roots = []
    for folder in above:
        configured = [posixpath.join(folder, root) for root in _configured_roots(project, folder)]
        roots += [folder, posixpath.join(folder, "src"), posixpath.join(folder, "lib"), *configured]
    for manifest in ("pyproject.toml", "setup.py"):
        for folder in project.packages_beside(path, manifest):
            roots += [posixpath.join(folder, "src"), folder]
    return list(dict.fromkeys(posixpath.normpath(root) if root else "" for root in roots))


def _configured_roots(project: Project, folder: str) -> Iterator[str]:
    """What a pyproject.toml says about where packages are."""
    configuration = project.toml(posixpath.join(folder, "pyproject.toml"))
    tools = table(configuration, "tool")
    yield from strings(table(tools, "pytest", "ini_options").get("pythonpath"))
    yield from strings(table(tools, "setuptools", "packages", "find").get("where"))
    yield from strings([table(tools, "setuptools", "package-dir").get("")])
    packages = table(tools, "poetry").get("packages")
    for package in packages if isinstance(packages, list) else ():
        yield from strings([table(package).get("from")])
    for members in strings(table(tools, "uv", "workspace").get("members")):
        for member in project.folders_like(posixpath.join(folder, members)):
            inside = posixpath.relpath(member, folder or ".")
            yield from (inside, f"{inside}/src")


def _read(node: Node) -> Iterator[Import]:
    names = tuple(
        text(name.child_by_field_name("name") if name.type == "aliased_import" else name)
        for name in node.children_by_field_name("name")
    )
    if node.type == "import_from_statement":
        yield Import(text(node.child_by_field_name("module_name")).replace(" ", ""), names)
    else:
        yield from map(Import, names)


GRAMMAR = Grammar(
    package="tree_sitter_python",
    function="language",
    nodes=frozenset({"import_statement", "import_from_statement"}),
    read=_read,
    keywords=frozenset({"import", "from"}),
)
