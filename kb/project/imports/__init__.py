"""Imports of source files, resolved to files of the project.

Each language has a grammar, which finds the imports, and a function, which yields the files of each
in order ("" or nothing for what is not part of the project).
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb.formats.source_code import Node, text
from kb.project.imports import javascript
from kb.project.imports.project import (
    Grammar,
    Import,
    Project,
    folders_above,
    literal,
    read_imports,
    strings,
    table,
)


def imported_files(project: Project, path: str, language: str, source: bytes) -> Iterator[str]:
    """The project's files that a source imports, in order of appearance, each once. Raises
    SyntaxProblem if a syntax error may hide imports."""
    language = "tsx" if path.endswith(".tsx") else language
    if (entry := _LANGUAGES.get(language)) is None:
        return
    grammar, resolve = entry
    seen = {"", path}
    for file in resolve(project, path, read_imports(language, grammar, source)):
        if file not in seen:
            seen.add(file)
            yield file


# C and C++


_HEADER_FOLDERS = ("include", "inc")


def _resolve_c(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    above = folders_above(path)
    header_folders = [posixpath.join(at, name) for at in above for name in _HEADER_FOLDERS]
    for name in _HEADER_FOLDERS:
        header_folders += [*project.folders_like(f"*/{name}"), *project.folders_like(f"*/*/{name}")]
    quoted = [*above, *(posixpath.join(at, "src") for at in above), *header_folders]
    for item in imports:
        # In angle brackets the compiler's own come first; it does not look beside the file.
        folders = header_folders if item.kind == "system" else quoted
        yield project.first(posixpath.join(folder, item.target) for folder in folders)


def _read_c(node: Node) -> Iterator[Import]:
    """An include in angle brackets has the kind "system"."""
    if (named := _NAMED.match(_rest_of_line(node))) is None:
        return
    path = named["quoted"] or named["system"] or b""
    if path:
        kind = "system" if named["system"] else ""
        yield Import(path.decode("utf-8", "replace").replace("\\", "/"), kind=kind)


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
# The token: its node is missing where macros confuse the grammar. Macros make correct files look
# wrong, so no error counts but an include of neither a file nor a macro for one. The line tells:
# among macros that confuse the grammar there are no string nodes.
_C_NODES = frozenset({"#include"})
_C = Grammar(
    _C_NODES,
    _read_c,
    _C_NODES,
    lambda token: _NAMED.match(_rest_of_line(token)) is None,
    has_head=False,
)


# Go


def _resolve_go(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    modules = _go_modules(project, path)
    for item in imports:
        # The longest name first: one module may be inside another.
        for name in sorted(modules, key=len, reverse=True):
            if item.target == name or item.target.startswith(name + "/"):
                folder = posixpath.join(modules[name], item.target[len(name) :].lstrip("/"))
                files = project.files_in(posixpath.normpath(folder), ".go")
                yield from (file for file in files if not file.endswith("_test.go"))
                break


def _go_modules(project: Project, path: str) -> dict[str, str]:
    """The folders of modules by name: around the file, of its workspace, replaced, or beside it."""
    modules: dict[str, str] = {}
    for folder in folders_above(path):
        module = project.text(posixpath.join(folder, "go.mod"))
        work = project.text(posixpath.join(folder, "go.work"))
        for name in _GO_MODULE.findall(module):
            modules.setdefault(name, folder)
        for name, place in _GO_REPLACED.findall(module + work):
            modules.setdefault(name, posixpath.join(folder, place))
        for place in _GO_USED.findall(work):
            member = posixpath.join(folder, place)
            for name in _GO_MODULE.findall(project.text(posixpath.join(member, "go.mod"))):
                modules.setdefault(name, member)
    for folder in project.packages_beside(path, "go.mod"):
        for name in _GO_MODULE.findall(project.text(posixpath.join(folder, "go.mod"))):
            modules.setdefault(name, folder)
    return modules


# Blanks of one line only, and names in one piece: linear on any file.
_GO_REPLACED = re.compile(r"^[ \t]*+(?:replace[ \t]++)?(\S++).*=>[ \t]*+(\.\S*+)", re.MULTILINE)
_GO_USED = re.compile(r"^[ \t]*+(?:use[ \t]++)?(\.\S*+)[ \t]*+$", re.MULTILINE)
_GO_MODULE = re.compile(r'^[ \t]*+module[ \t]++"?([^\s"]++)', re.MULTILINE)


def _read_go(node: Node) -> Iterator[Import]:
    pending = [node]
    while pending:
        node = pending.pop()
        if node.type == "import_spec":
            yield Import(literal(node.child_by_field_name("path")))
        pending.extend(reversed(node.named_children))


_GO = Grammar(frozenset({"import_declaration"}), _read_go, frozenset({"import"}))


# Java


# Of this project and, in one with several parts, of each part.
_SOURCE_ROOTS = ("src/main/java", "*/src/main/java", "*/*/src/main/java", "src/test/java", "src")


def _resolve_java(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files of the imported classes, and of packages imported as a whole."""
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
            if whole := next(filter(None, files), []):
                yield from whole
                continue
        # After the class the name may continue to one inside it or to a static member.
        lengths = range(len(parts), max(len(parts) - 3, 0), -1)
        names = [posixpath.join(*parts[:length]) + ".java" for length in lengths]
        yield project.first(posixpath.join(root, name) for name in names for root in roots)


def _source_roots(project: Project, path: str, packages: Sequence[str]) -> list[str]:
    roots = []
    folder = posixpath.dirname(path)
    for package in packages:
        inside = package.replace(".", "/")
        if folder == inside or folder.endswith("/" + inside):
            root = folder[: -len(inside)].rstrip("/")
            roots += [root, root.replace("src/test/", "src/main/")]
    for pattern in _SOURCE_ROOTS:
        roots += project.folders_like(pattern)
    return list(dict.fromkeys([*roots, ""]))


def _read_java(node: Node) -> Iterator[Import]:
    """The file's own package has the kind "package", a wildcard ends in ".*"."""
    names = [child for child in node.named_children if child.type.endswith("identifier")]
    every = any(child.type == "asterisk" for child in node.named_children)
    kind = "package" if node.type == "package_declaration" else ""
    if names:
        yield Import(text(names[-1]) + (".*" if every else ""), kind=kind)


_JAVA_NODES = frozenset({"package_declaration", "import_declaration"})
_JAVA = Grammar(_JAVA_NODES, _read_java, frozenset({"import"}))


# Python


def _resolve_python(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    """The files of the imported modules; of `from a import b` the module `a.b` if there is one."""
    roots = _import_roots(project, path)
    for item in imports:
        module = item.target.lstrip(".")
        dots, parts = len(item.target) - len(module), module.split(".")
        if dots:
            bases = folders_above(path)[dots - 1 : dots]
        elif parts[0] in sys.stdlib_module_names:
            bases = roots[:1]  # where a module of the project hides the library's
        else:
            bases = roots
        for base in bases:
            module = posixpath.join(base, *parts)
            file = _module_file(project, module.rstrip("/"))
            inner = [_module_file(project, posixpath.join(module, name)) for name in item.names]
            if files := [*filter(None, (other or file for other in inner or [file]))]:
                yield from files
                break


def _module_file(project: Project, module: str) -> str:
    # In Python's order; stubs for what has no source.
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
    tools = table(project.toml(posixpath.join(folder, "pyproject.toml")), "tool")
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


def _read_python(node: Node) -> Iterator[Import]:
    names = tuple(
        text(name.child_by_field_name("name") if name.type == "aliased_import" else name)
        for name in node.children_by_field_name("name")
    )
    if node.type == "import_from_statement":
        yield Import(text(node.child_by_field_name("module_name")).replace(" ", ""), names)
    else:
        yield from map(Import, names)


_PYTHON_NODES = frozenset({"import_statement", "import_from_statement"})
_PYTHON = Grammar(_PYTHON_NODES, _read_python, frozenset({"import", "from"}))


# Ruby


_LOAD_PATH = ("lib", "app", "test", "spec")
_RUBY_METHODS = ("require", "require_relative", "require_dependency", "load", "autoload")


def _resolve_ruby(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    above = folders_above(path)
    load_path = [posixpath.join(folder, name) for folder in above for name in _LOAD_PATH]
    for item in imports:
        is_relative = item.kind == "relative" or item.target.startswith(("./", "../"))
        folders = above[:1] if is_relative else [*load_path, ""]
        name = item.target.removesuffix(".rb") + ".rb"
        yield project.first(posixpath.join(folder, name) for folder in folders)


def _read_ruby(node: Node) -> Iterator[Import]:
    """`require_relative` has the kind "relative"."""
    method = text(node.child_by_field_name("method"))
    arguments = node.child_by_field_name("arguments")
    is_own = node.child_by_field_name("receiver") is None
    if method in _RUBY_METHODS and is_own and arguments is not None and arguments.named_children:
        target = literal(arguments.named_children[-1])
        if target:
            yield Import(target, kind="relative" if method == "require_relative" else "")


def _is_broken_ruby(word: Node) -> bool:
    """Whether it is `require`, followed on its line by something unreadable."""
    if text(word) not in ("require", "require_relative"):
        return False
    statement, after = word.parent, word.next_sibling
    if statement is not None and (
        statement.is_error or (statement.has_error and statement.type == "call")
    ):
        return True
    is_near = after is not None and after.start_point.row == word.start_point.row
    return is_near and after is not None and after.is_error


# The grammar sees these keywords as methods.
_RUBY = Grammar(frozenset({"call"}), _read_ruby, frozenset({"identifier"}), _is_broken_ruby)


# Rust: a path leads to an item. Its file is that of the innermost module on the way that has one;
# modules written inside another's file lead to that file.


@dataclass(frozen=True, slots=True)
class _Crate:
    folder: str  # where the files of its top modules are
    root: str  # the file that declares these; "" if there is none


def _resolve_rust(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    package = next(
        (at for at in folders_above(path) if project.file(posixpath.join(at, "Cargo.toml"))), ""
    )
    crate = _crate_of(project, package, path)
    crates = _crates_of_workspace(project, package, path)
    # The names from the crate's folder down to where the file's own modules are.
    stem = path.removesuffix(".rs")
    folder, name = posixpath.split(stem)
    is_root = path == crate.root or (folder == crate.folder and name in ("lib", "main"))
    below = posixpath.relpath(folder if is_root or name == "mod" else stem, crate.folder or ".")
    for item in imports:
        inside = [*([] if below == "." else below.split("/")), *item.names]
        if item.kind == "path":
            yield project.file(posixpath.join(posixpath.dirname(path), item.target))
            continue
        if item.kind == "mod":
            yield _rust_file(project, crate.folder, [*inside, item.target])
            continue
        first, *rest = item.target.removeprefix("::").split("::")
        if first == "crate":
            yield _innermost(project, crate, rest)
        elif first in ("self", "super"):
            names = [first, *rest]
            while names and names[0] in ("self", "super"):
                if names.pop(0) == "super":
                    inside = inside[:-1]
            yield _innermost(project, crate, [*inside, *names])
        elif _rust_file(project, crate.folder, [*inside, first]):
            yield _innermost(project, crate, [*inside, first, *rest])
        elif first in crates:
            yield _innermost(project, crates[first], rest)


def _innermost(project: Project, crate: _Crate, names: Sequence[str]) -> str:
    for length in range(len(names), 0, -1):
        if file := _rust_file(project, crate.folder, names[:length]):
            return file
    return crate.root


def _rust_file(project: Project, folder: str, names: Sequence[str]) -> str:
    module = posixpath.join(folder, *names)
    return project.first([f"{module}.rs", f"{module}/mod.rs"])


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
    names = (first, "main.rs")
    return _Crate(folder, project.first(posixpath.join(folder, name) for name in names))


def _crates_of_workspace(project: Project, package: str, path: str) -> dict[str, _Crate]:
    manifest = project.toml(posixpath.join(package, "Cargo.toml"))
    folders = [(_crate_name(manifest), package)]
    for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
        for name, value in table(manifest, kind).items():
            places = strings([table(value).get("path")])
            folders += [(name, posixpath.join(package, place)) for place in places]
    for above in folders_above(path):
        workspace = table(project.toml(posixpath.join(above, "Cargo.toml")), "workspace")
        for pattern in strings(workspace.get("members")):
            for member in project.folders_like(posixpath.join(above, pattern)):
                name = _crate_name(project.toml(posixpath.join(member, "Cargo.toml")))
                folders.append((name, member))
    crates: dict[str, _Crate] = {}
    for name, folder in folders:
        source = posixpath.normpath(posixpath.join(folder, "src"))
        root = project.file(f"{source}/lib.rs")
        if root and name:
            crates.setdefault(name.replace("-", "_"), _Crate(source, root))
    return crates


def _crate_name(manifest: dict[str, object]) -> str:
    names = (table(manifest, "lib").get("name"), table(manifest, "package").get("name"))
    return next(iter(strings(list(names))), "")


def _read_rust(node: Node) -> Iterator[Import]:
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
        name = text(node.child_by_field_name("name"))
        yield Import(path or name, around, "path" if path else "mod")


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


_RUST = Grammar(frozenset({"mod_item", "use_declaration"}), _read_rust, frozenset({"use"}))


_LANGUAGES = {
    **dict.fromkeys(("c", "cpp"), (_C, _resolve_c)),
    "go": (_GO, _resolve_go),
    "java": (_JAVA, _resolve_java),
    **dict.fromkeys(("javascript", "tsx", "typescript"), (javascript.GRAMMAR, javascript.resolve)),
    "python": (_PYTHON, _resolve_python),
    "ruby": (_RUBY, _resolve_ruby),
    "rust": (_RUST, _resolve_rust),
}
