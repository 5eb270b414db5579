"""What a project is made of, as its package manifests say. They are read, never run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from kb.disk.read import read_bytes
from kb.text.file_names import on_disk

__all__ = ["MANIFESTS", "read_stack"]

MAXIMUM_BYTES = 1_000_000
MOST_MANIFESTS = 20
MOST_DEPENDENCIES = 30


def read_stack(root: Path, paths: Iterable[str]) -> list[dict[str, Any]]:
    """One row a manifest, those nearest to the root first; a broken one is only named."""
    found = [path for path in paths if PurePosixPath(path).name in MANIFESTS]
    found.sort(key=lambda path: (path.count("/"), path))
    rows = []
    for path in found[:MOST_MANIFESTS]:
        language, read = MANIFESTS[PurePosixPath(path).name]
        row: dict[str, Any] = {"manifest": path, "language": language}
        try:
            text = read_bytes(root / on_disk(path), MAXIMUM_BYTES).decode("utf-8-sig")
            row |= {key: value for key, value in read(text).items() if value}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            # Anybody's file: whatever it holds in place of what we look for.
            row["unreadable"] = True
        rows.append(row)
    return rows


def _pyproject(text: str) -> dict[str, Any]:
    content = tomllib.loads(text)
    project = content.get("project") or content.get("tool", {}).get("poetry", {})
    listed = project.get("dependencies", [])
    return _row(project.get("name"), project.get("version"), map(_requirement, listed))


def _package_json(text: str) -> dict[str, Any]:
    content = json.loads(text)
    listed = [*content.get("dependencies", {}), *content.get("devDependencies", {})]
    return _row(content.get("name"), content.get("version"), listed)


def _cargo(text: str) -> dict[str, Any]:
    content = tomllib.loads(text)
    package = content.get("package", {})
    return _row(package.get("name"), package.get("version"), content.get("dependencies", {}))


def _go_mod(text: str) -> dict[str, Any]:
    name = re.search(r"^module[ \t]++(\S++)", text, re.MULTILINE)
    required = re.findall(
        r"^(?:require[ \t]++|\t)([\w.-]++/\S++)[ \t]++v\S++[ \t]*+$", text, re.MULTILINE
    )
    return _row(name[1] if name else None, None, required)


def _requirements(text: str) -> dict[str, Any]:
    lines = [line.strip() for line in text.splitlines()]
    return _row(None, None, [_requirement(line) for line in lines if line[:1].isalnum()])


def _pom(text: str) -> dict[str, Any]:
    # By expression, since an XML parser expands what a hostile file defines.
    named = re.findall(r"<artifactId>\s*([^<\s]+)\s*</artifactId>", text)
    return _row(named[0] if named else None, None, named[1:])


def _gradle(text: str) -> dict[str, Any]:
    pattern = r"""(?:implementation|api)\s*+\(?+\s*+["']([^"']+)["']"""
    return _row(None, None, re.findall(pattern, text))


def _gemfile(text: str) -> dict[str, Any]:
    return _row(None, None, re.findall(r"""^[ \t]*+gem[ \t]++["']([^"']++)""", text, re.MULTILINE))


MANIFESTS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "pyproject.toml": ("Python", _pyproject),
    "requirements.txt": ("Python", _requirements),
    "package.json": ("JavaScript", _package_json),
    "Cargo.toml": ("Rust", _cargo),
    "go.mod": ("Go", _go_mod),
    "pom.xml": ("Java", _pom),
    "build.gradle": ("Java", _gradle),
    "build.gradle.kts": ("Kotlin", _gradle),
    "Gemfile": ("Ruby", _gemfile),
    "CMakeLists.txt": ("C++", lambda text: _row(_cmake_name(text), None, [])),
}


def _cmake_name(text: str) -> str | None:
    found = re.search(r"\bproject\s*\(\s*([\w.-]+)", text, re.IGNORECASE)
    return found[1] if found else None


def _row(name: Any, version: Any, dependencies: Iterable[Any]) -> dict[str, Any]:
    listed = [one for one in dependencies if isinstance(one, str) and one]
    return {
        "name": name if isinstance(name, str) else None,
        "version": version if isinstance(version, str) else None,
        "dependencies": list(dict.fromkeys(listed))[:MOST_DEPENDENCIES],
    }


def _requirement(text: Any) -> str:
    found = re.match(r"[\w.-]+", text) if isinstance(text, str) else None
    return found[0] if found else ""
