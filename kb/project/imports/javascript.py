"""JavaScript and TypeScript: relative specifiers, tsconfig paths, and packages of the workspace."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from kb.formats.source_code import Node, text
from kb.project.imports.project import (
    Grammar,
    Import,
    Project,
    folders_above,
    literal,
    strings,
    table,
)
from kb.text.json_text import without_comments

_TYPESCRIPT: tuple[str, ...] = (".ts", ".tsx", ".d.ts", ".mts", ".cts")
_JAVASCRIPT: tuple[str, ...] = (".js", ".jsx", ".mjs", ".cjs")
_OTHER = (".json", ".vue", ".svelte")

# TypeScript sources name the output of the file that they mean.
_SOURCES = {
    ".js": (".ts", ".tsx", ".d.ts"),
    ".jsx": (".tsx", ".d.ts"),
    ".mjs": (".mts", ".d.mts"),
    ".cjs": (".cts", ".d.cts"),
}


def resolve(project: Project, path: str, imports: Iterable[Import]) -> Iterator[str]:
    packages = _workspace_packages(project, path)
    mapping = _path_mapping(project, path, packages)
    for item in imports:
        specifier = item.target.split("?")[0]  # "./icon.svg?raw": how a bundler should load it
        for base in _bases(project, path, specifier, mapping, packages):
            if file := _file(project, base, prefer_typescript=path.endswith(_TYPESCRIPT)):
                yield file
                break


def _bases(
    project: Project, path: str, specifier: str, mapping: PathMapping, packages: dict[str, str]
) -> Iterator[str]:
    folder = posixpath.dirname(path)
    if specifier.startswith(("./", "../")) or specifier in (".", ".."):
        yield posixpath.join(folder, specifier)
        return
    yield from mapping.candidates(specifier)
    if specifier.startswith("#"):
        # By the file's own package.
        manifests = ((at, _manifest(project, at)) for at in folders_above(path))
        at, manifest = next(filter(itemgetter(1), manifests), ("", {}))
        for target in _exported(manifest.get("imports"), specifier):
            yield posixpath.join(at, target)
            yield posixpath.join(at, _ENDING.sub("", _BUILT.sub("src/", target)))
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
    file = project.first(candidates)
    if file or not project.is_folder(base):
        return file
    index = [posixpath.join(base, "index" + ending) for ending in endings]
    # Not again for a folder that a package.json names: two may name each other.
    if not is_main and project.file(posixpath.join(base, "package.json")):
        for target in package_targets(project, base, ""):
            if file := _file(project, target, prefer_typescript=prefer_typescript, is_main=True):
                return file
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
GRAMMAR = Grammar(_NODES, _read, frozenset({"import"}))


# The packages of a workspace, and what their package.json lets others import
# Folders of build output, which do not exist in a clean checkout.
_BUILT = re.compile(r"^(?:\./)?(?:dist|build|lib|out|esm|cjs)/(?:(?:esm|cjs|src)/)?")
_ENDING = re.compile(r"(?:\.d)?\.[cm]?[jt]sx?$")
_LISTED = re.compile(r"""\n[ \t]*-[ \t]*["']?([^"'\s#]+)""")


def _workspace_packages(project: Project, path: str) -> dict[str, str]:
    """The folders of packages by name, longest first, so that `@scope/a/b` is not taken for a part
    of `@scope/a`: those around a file, of its workspace, and beside it."""
    packages: dict[str, str] = {}
    for folder in folders_above(path):
        workspaces = _manifest(project, folder).get("workspaces")
        patterns = strings(table(workspaces).get("packages", workspaces))
        # The file is a list under one key, which needs no YAML parser.
        workspace = project.text(posixpath.join(folder, "pnpm-workspace.yaml"))
        listed = _LISTED.findall(workspace.partition("packages:")[2])
        patterns += [pattern for pattern in listed if not pattern.startswith("!")]
        members = [at for p in patterns for at in project.folders_like(posixpath.join(folder, p))]
        for at in (folder, *members):
            for name in strings([_manifest(project, at).get("name")]):
                packages.setdefault(name, at)
    for at in project.packages_beside(path, "package.json"):
        for name in strings([_manifest(project, at).get("name")]):
            packages.setdefault(name, at)
    return dict(sorted(packages.items(), key=lambda item: (-len(item[0]), item[0])))


def package_targets(project: Project, folder: str, subpath: str) -> Iterator[str]:
    """Where a package's folder may keep an import's file, the best guess first. `subpath` is what
    follows the package's name; "" for the package itself."""
    manifest = _manifest(project, folder)
    targets = list(_exported(manifest.get("exports"), f"./{subpath}" if subpath else "."))
    if subpath:
        targets += [subpath, f"src/{subpath}"]
    else:
        fields = ("source", "types", "module", "main")
        targets += [*strings([manifest.get(name) for name in fields]), "src/index", "index"]
    for target in targets:
        yield posixpath.join(folder, target)
        source = _BUILT.sub("src/", target)
        if source != target:
            yield posixpath.join(folder, _ENDING.sub("", source))
            yield posixpath.join(folder, _ENDING.sub("", _BUILT.sub("", target)))


def _exported(exports: Any, name: str) -> Iterator[str]:
    """The targets of one entry of `exports` or `imports`, of all conditions."""
    entries = exports
    if not isinstance(exports, dict) or not any(key.startswith((".", "#")) for key in exports):
        entries = {".": exports}  # short for a package with a single entry
    for key, target in entries.items():
        start, star, end = key.partition("*")
        if key == name:
            yield from _conditions(target)
        elif star and name.startswith(start) and name.endswith(end):
            middle = name[len(start) : len(name) - len(end)]
            yield from (path.replace("*", middle) for path in _conditions(target))


def _conditions(target: Any) -> Iterator[str]:
    if isinstance(target, str):
        yield target
    elif isinstance(target, dict | list):
        for inner in target.values() if isinstance(target, dict) else target:
            yield from _conditions(inner)


def _manifest(project: Project, folder: str) -> dict[str, Any]:
    try:
        return table(json.loads(project.text(posixpath.join(folder, "package.json")) or "{}"))
    except (ValueError, RecursionError):
        return {}


# `paths` and `baseUrl` of the tsconfig.json or jsconfig.json that a file belongs to
_HERE = "${configDir}"
_CHAIN_AT_MOST = 10  # configurations that extend one another


@dataclass(frozen=True, slots=True)
class PathMapping:
    """What a configuration says about specifiers that are not relative."""

    base: str | None = None  # the folder of `baseUrl`, relative to the root
    folder: str = ""  # where the targets of `paths` start
    paths: Mapping[str, list[str]] = field(default_factory=dict)

    def candidates(self, specifier: str) -> Iterator[str]:
        """Where a specifier may lead, in the compiler's order: the best pattern, then `baseUrl`."""
        if specifier in self.paths:
            yield from (posixpath.join(self.folder, to) for to in self.paths[specifier])
        else:
            # Of several patterns the one with the longest text before its star applies.
            for pattern in sorted(self.paths, key=lambda key: -len(key.partition("*")[0])):
                start, star, end = pattern.partition("*")
                fits = specifier.startswith(start) and specifier.endswith(end)
                if star and fits and len(specifier) >= len(start) + len(end):
                    middle = specifier[len(start) : len(specifier) - len(end)]
                    for target in self.paths[pattern]:
                        yield posixpath.join(self.folder, target.replace("*", middle, 1))
                    break
        if self.base is not None:
            yield posixpath.join(self.base, specifier)


def _path_mapping(project: Project, path: str, packages: Mapping[str, str]) -> PathMapping:
    """The mapping of the nearest configuration above a file, or the first among the projects that
    this only combines."""
    names = ("tsconfig.json", "jsconfig.json")
    configs = (
        project.first(posixpath.join(at, name) for name in names) for at in folders_above(path)
    )
    config = next(filter(None, configs), "")
    references = _json_with_comments(project.text(config)).get("references") if config else None
    listed = references if isinstance(references, list) else ()
    places = strings([table(reference).get("path") for reference in listed])
    folder = posixpath.dirname(config)
    files = [config, *(_config_file(project, posixpath.join(folder, place)) for place in places)]
    mappings = (_load(project, file, packages, _CHAIN_AT_MOST) for file in filter(None, files))
    return next((mapping for mapping in mappings if mapping != PathMapping()), PathMapping())


def _load(project: Project, config: str, packages: Mapping[str, str], chain: int) -> PathMapping:
    content = _json_with_comments(project.text(config))
    folder = posixpath.dirname(config)
    mapping = PathMapping()
    extends = content.get("extends")
    for parent in strings(extends if isinstance(extends, list) else [extends]):
        file = ""
        if parent.startswith("."):
            file = _config_file(project, posixpath.join(folder, parent))
        else:
            for name, place in packages.items():
                if parent == name or parent.startswith(name + "/"):
                    file = _config_file(project, posixpath.join(place, parent[len(name) + 1 :]))
                    break
        if file and chain:
            inherited = _load(project, file, packages, chain - 1)
            # A later one overrides an earlier one, each option as a whole.
            mapping = replace(mapping, base=inherited.base or mapping.base)
            if inherited.paths:
                mapping = replace(mapping, folder=inherited.folder, paths=inherited.paths)
    options = table(content, "compilerOptions")
    for base in strings([options.get("baseUrl")]):
        mapping = replace(
            mapping, base=posixpath.normpath(posixpath.join(folder, base.replace(_HERE, ".")))
        )
    paths = {
        pattern: [target.replace(_HERE, ".") for target in strings(targets)]
        for pattern, targets in table(options, "paths").items()
    }
    if paths:
        start = folder if mapping.base is None else mapping.base
        mapping = replace(mapping, folder=start, paths=paths)
    return mapping


def _config_file(project: Project, path: str) -> str:
    return project.first([path, f"{path}.json", posixpath.join(path, "tsconfig.json")])


def _json_with_comments(text: str) -> dict[str, Any]:
    """JSON as TypeScript accepts it; empty if it is malformed."""
    try:
        return table(json.loads(without_comments(text)))
    except (ValueError, RecursionError):
        return {}
