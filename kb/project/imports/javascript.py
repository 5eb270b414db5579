"""JavaScript and TypeScript: relative specifiers, tsconfig paths, and packages of the workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from kb.formats.syntax_tree import Node, text
from kb.project.imports.packages import own_imports, package_targets, workspace_packages
from kb.project.imports.project import Project
from kb.project.imports.syntax import Grammar, Import, literal
from kb.project.imports.typescript_config import PathMapping, path_mapping

__all__ = ["JAVASCRIPT_GRAMMAR", "TSX_GRAMMAR", "TYPESCRIPT_GRAMMAR", "resolve"]

_TYPESCRIPT: tuple[str, ...] = (".ts", ".tsx", ".d.ts", ".mts", ".cts")
_JAVASCRIPT: tuple[str, ...] = (".js", ".jsx", ".mjs", ".cjs")
_OTHER = (".json", ".vue", ".svelte")

# TypeScript sources name the file that will be compiled from the one they mean.
_SOURCES = {
    ".js": (".ts", ".tsx", ".d.ts"),
    ".jsx": (".tsx", ".d.ts"),
    ".mjs": (".mts", ".d.mts"),
    ".cjs": (".cts", ".d.cts"),
}


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files that are imported, exported from, or required."""
    mapping = path_mapping(project, path)
    packages = workspace_packages(project, path)
    for item in imports:
        specifier = item.target.split("?")[0]  # "./icon.svg?raw": how a bundler is to load it
        for base in _bases(project, path, specifier, mapping, packages):
            found = _file(project, base, prefer_typescript=path.endswith(_TYPESCRIPT))
            if found:
                yield found
                break


def _bases(
    project: Project, path: str, specifier: str, mapping: PathMapping, packages: dict[str, str]
) -> Iterator[str]:
    """Where a specifier may lead, without regard to endings."""
    folder = posixpath.dirname(path)
    if specifier.startswith(("./", "../")) or specifier in (".", ".."):
        yield posixpath.join(folder, specifier)
        return
    yield from mapping.candidates(specifier)
    if specifier.startswith("#"):
        yield from own_imports(project, path, specifier)
    for name, place in packages.items():
        if specifier == name or specifier.startswith(name + "/"):
            yield from package_targets(project, place, specifier[len(name) + 1 :])


def _file(project: Project, base: str, *, prefer_typescript: bool, is_main: bool = False) -> str:
    """The file for a specifier; `is_main` when a package.json has named it."""
    is_folder = base.endswith(("/", "/.", "/..")) or base in (".", "..")
    base = posixpath.normpath(base)
    if base.startswith("../"):
        return ""
    first, second = (_TYPESCRIPT, _JAVASCRIPT) if prefer_typescript else (_JAVASCRIPT, _TYPESCRIPT)
    endings = [*first, *second, *_OTHER]
    candidates: list[str] = []
    if not is_folder:
        stem, ending = posixpath.splitext(base)
        sources = [stem + source for source in _SOURCES.get(ending, ())]
        candidates = [*sources, base] if prefer_typescript else [base, *sources]
        candidates += [base + ending for ending in endings]
    found = project.first(candidates)
    if found or not project.is_folder(base):
        return found
    index = [posixpath.join(base, "index" + ending) for ending in endings]
    # Not again for the folder that a package.json names: two may name each other.
    if not is_main and project.file(posixpath.join(base, "package.json")):
        for target in package_targets(project, base, ""):
            found = _file(project, target, prefer_typescript=prefer_typescript, is_main=True)
            if found:
                return found
    return project.first(index)


def _read(node: Node) -> Iterator[Import]:
    if node.type == "call_expression":
        arguments = node.child_by_field_name("arguments")
        name = text(node.child_by_field_name("function"))
        if arguments is None or name not in ("import", "require") or not arguments.named_children:
            return
        target = literal(arguments.named_children[0])
    else:
        target = literal(node.child_by_field_name("source"))
    if target:
        yield Import(target)


_NODES = frozenset(
    {"import_statement", "import_require_clause", "export_statement", "call_expression"}
)
_KEYWORDS = frozenset({"import"})

JAVASCRIPT_GRAMMAR = Grammar("tree_sitter_javascript", "language", _NODES, _read, _KEYWORDS)
TYPESCRIPT_GRAMMAR = Grammar(
    "tree_sitter_typescript", "language_typescript", _NODES, _read, _KEYWORDS
)
TSX_GRAMMAR = Grammar("tree_sitter_typescript", "language_tsx", _NODES, _read, _KEYWORDS)
