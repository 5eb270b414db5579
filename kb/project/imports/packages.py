"""The packages of a JavaScript workspace, and what their package.json lets others import."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from kb.project.imports.project import Project, folders_above, strings, table

__all__ = ["own_imports", "package_targets", "workspace_packages"]

# Folders of what is built from the sources, which in a clean checkout do not exist.
_BUILT = re.compile(r"^(?:\./)?(?:dist|build|lib|out|esm|cjs)/(?:(?:esm|cjs|src)/)?")
_ENDING = re.compile(r"(?:\.d)?\.[cm]?[jt]sx?$")


def workspace_packages(project: Project, path: str) -> dict[str, str]:
    """The folders of packages by name: those around a file, of its workspace, and beside it.

    Longer names come first, so that `@scope/a/b` is not taken for a part of `@scope/a`.
    """
    packages: dict[str, str] = {}
    for folder in folders_above(path):
        manifest = _manifest(project, folder)
        workspaces = manifest.get("workspaces")
        patterns = strings(table(workspaces).get("packages", workspaces))
        patterns += _pnpm_patterns(project.text(posixpath.join(folder, "pnpm-workspace.yaml")))
        members = [at for p in patterns for at in project.folders_like(posixpath.join(folder, p))]
        for at in (folder, *members):
            for name in strings([_manifest(project, at).get("name")]):
                packages.setdefault(name, at)
    for at in project.packages_beside(path, "package.json"):
        for name in strings([_manifest(project, at).get("name")]):
            packages.setdefault(name, at)
    return dict(sorted(packages.items(), key=lambda item: (-len(item[0]), item[0])))


def package_targets(project: Project, folder: str, subpath: str) -> Iterator[str]:
    """Where a package's folder may keep what is imported from it, the best guess first.

    Args:
        subpath: what stands behind the package's name; "" for the package itself.
    """
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


def own_imports(project: Project, path: str, specifier: str) -> Iterator[str]:
    """Where `#name` leads by the `imports` of the file's own package."""
    for folder in folders_above(path):
        manifest = _manifest(project, folder)
        if manifest:
            for target in _exported(manifest.get("imports"), specifier):
                yield posixpath.join(folder, target)
                yield posixpath.join(folder, _ENDING.sub("", _BUILT.sub("src/", target)))
            return


def _exported(exports: Any, wanted: str) -> Iterator[str]:
    """The targets of one entry of `exports` or `imports`, of all conditions."""
    entries = exports
    if not isinstance(exports, dict) or not any(key.startswith((".", "#")) for key in exports):
        entries = {".": exports}  # short for a package with a single entry
    for key, target in entries.items():
        start, star, end = key.partition("*")
        if key == wanted:
            yield from _conditions(target)
        elif star and wanted.startswith(start) and wanted.endswith(end):
            middle = wanted[len(start) : len(wanted) - len(end)]
            yield from (found.replace("*", middle) for found in _conditions(target))


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


def _pnpm_patterns(text: str) -> list[str]:
    # The file is a list under one key; a YAML parser would be more than it needs.
    _, _, listed = text.partition("packages:")
    patterns = re.findall(r"""\n[ \t]*-[ \t]*["']?([^"'\s#]+)""", listed)
    return [pattern for pattern in patterns if not pattern.startswith("!")]
