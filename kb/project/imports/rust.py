"""Rust: module files, and the modules that a `use` path passes through.

A path leads to an item. Its file is that of the innermost module on the way that has one; modules
written inside another's file lead to that file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb.formats.syntax_tree import Node, text
from kb.project.imports.project import Project, folders_above, strings, table
from kb.project.imports.syntax import Grammar, Import, literal


@dataclass(frozen=True, slots=True)
class _Crate:
    folder: str  # where the files of its top modules are
    root: str  # the file that declares these; "" if there is none


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    package = next(
        (at for at in folders_above(path) if project.file(posixpath.join(at, "Cargo.toml"))), ""
    )
    crate = _crate_of(project, package, path)
    crates = _crates_of_workspace(project, package, path)
    module_folder = _module_folder(crate, path)
    for item in imports:
        inside = [*module_folder, *item.names]
        if item.kind == "path":
            yield project.file(posixpath.join(posixpath.dirname(path), item.target))
            continue
        if item.kind == "mod":
            yield _module_file(project, crate.folder, [*inside, item.target])
            continue
        first, *rest = item.target.removeprefix("::").split("::")
        if first == "crate":
            yield _innermost(project, crate, rest)
        elif first in ("self", "super"):
            yield _innermost(project, crate, _relative(inside, [first, *rest]))
        elif _module_file(project, crate.folder, [*inside, first]):
            yield _innermost(project, crate, [*inside, first, *rest])
        elif first in crates:
            yield _innermost(project, crates[first], rest)


def _relative(inside: Sequence[str], names: Sequence[str]) -> list[str]:
    at, rest = list(inside), list(names)
    while rest and rest[0] in ("self", "super"):
        if rest.pop(0) == "super":
            at = at[:-1]
    return [*at, *rest]


def _innermost(project: Project, crate: _Crate, names: Sequence[str]) -> str:
    for length in range(len(names), 0, -1):
        if file := _module_file(project, crate.folder, names[:length]):
            return file
    return crate.root


def _module_file(project: Project, folder: str, names: Sequence[str]) -> str:
    module = posixpath.join(folder, *names)
    return project.first([f"{module}.rs", f"{module}/mod.rs"])


def _module_folder(crate: _Crate, path: str) -> list[str]:
    """The names from the crate's folder down to where a file's own modules are."""
    stem = path.removesuffix(".rs")
    folder, name = posixpath.split(stem)
    is_root = path == crate.root or (folder == crate.folder and name in ("lib", "main"))
    inside = posixpath.relpath(folder if is_root or name == "mod" else stem, crate.folder or ".")
    return [] if inside == "." else inside.split("/")


# Each file in these folders of a package, or folder there with a main.rs, is its own crate.
_PROGRAM_FOLDERS = ("src/bin/", "tests/", "examples/", "benches/")


def _crate_of(project: Project, package: str, path: str) -> _Crate:
    inside = posixpath.relpath(path, package or ".")
    for programs in _PROGRAM_FOLDERS:
        if inside.startswith(programs):
            folder = posixpath.join(package, programs.rstrip("/"))
            name, slash, _ = inside.removeprefix(programs).partition("/")
            if not slash:
                return _Crate(folder, path)
            root = project.file(posixpath.join(folder, name, "main.rs"))
            return _Crate(posixpath.dirname(root), root) if root else _Crate(folder, "")
    folder = posixpath.join(package, "src") if inside.startswith("src/") else package
    first = "main.rs" if inside.endswith("/main.rs") else "lib.rs"
    return _Crate(
        folder, project.first(posixpath.join(folder, name) for name in (first, "main.rs"))
    )


def _crates_of_workspace(project: Project, package: str, path: str) -> dict[str, _Crate]:
    manifest = project.toml(posixpath.join(package, "Cargo.toml"))
    folders = [(_name(manifest), package)]
    for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
        for name, value in table(manifest, kind).items():
            places = strings([table(value).get("path")])
            folders += [(name, posixpath.join(package, place)) for place in places]
    for above in folders_above(path):
        workspace = table(project.toml(posixpath.join(above, "Cargo.toml")), "workspace")
        for pattern in strings(workspace.get("members")):
            for member in project.folders_like(posixpath.join(above, pattern)):
                name = _name(project.toml(posixpath.join(member, "Cargo.toml")))
                folders.append((name, member))
    crates: dict[str, _Crate] = {}
    for name, folder in folders:
        source = posixpath.normpath(posixpath.join(folder, "src"))
        root = project.file(f"{source}/lib.rs")
        if root and name:
            crates.setdefault(name.replace("-", "_"), _Crate(source, root))
    return crates


def _name(manifest: dict[str, object]) -> str:
    names = (table(manifest, "lib").get("name"), table(manifest, "package").get("name"))
    return next(iter(strings(list(names))), "")


def _read(node: Node) -> Iterator[Import]:
    """A declaration has the kind "mod", or "path" with the value of its attribute as target."""
    around: tuple[str, ...] = ()
    parent = node.parent
    while parent is not None:
        if parent.type == "mod_item":
            around = (text(parent.child_by_field_name("name")), *around)
        parent = parent.parent
    if node.type == "use_declaration":
        for path in _use_paths(node.child_by_field_name("argument"), ""):
            yield Import(path, around)
    elif node.child_by_field_name("body") is None:
        path = _path_attribute(node)
        yield Import(
            path or text(node.child_by_field_name("name")), around, "path" if path else "mod"
        )


def _path_attribute(node: Node) -> str:
    """The value of `#[path = "..."]` before a declaration."""
    before = node.prev_named_sibling
    while before is not None and before.type in ("attribute_item", "line_comment"):
        for attribute in before.named_children:
            if attribute.named_children and text(attribute.named_children[0]) == "path":
                return literal(attribute.child_by_field_name("value"))
        before = before.prev_named_sibling
    return ""


def _use_paths(node: Node | None, prefix: str) -> Iterator[str]:
    """Each path of a `use`, with braces expanded and aliases ignored."""
    if node is None or node.is_extra:
        return
    if node.type == "use_list":
        for child in node.named_children:
            yield from _use_paths(child, prefix)
    elif node.type == "scoped_use_list":
        path = text(node.child_by_field_name("path"))
        yield from _use_paths(node.child_by_field_name("list"), f"{prefix}{path}::")
    elif node.type == "use_as_clause":
        yield from _use_paths(node.child_by_field_name("path"), prefix)
    elif node.type == "use_wildcard":
        yield (prefix + "".join(map(text, node.named_children))).removesuffix("::")
    else:
        name = text(node)
        yield prefix.removesuffix("::") if name == "self" and prefix else prefix + name


GRAMMAR = Grammar(frozenset({"mod_item", "use_declaration"}), _read, frozenset({"use"}))
