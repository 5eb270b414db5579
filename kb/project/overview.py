"""A project at a glance, one of its modules, and what happened in sessions."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kb.disk.grep import SKIPPED_FOLDERS
from kb.disk.inside import is_hidden_from_tools
from kb.disk.read import read_bytes
from kb.errors import ModuleNotFound, SourceError
from kb.ingest.discoveries import all_discoveries
from kb.project.in_use import ProjectInUse
from kb.project.tree import files_are_here, language_of, module_of, role_of
from kb.results.documents import CollectionInfo
from kb.sources.folder import SourceFile, walk
from kb.store.database import Database
from kb.store.sessions import details_of_session, file_scores, files_of_session, newest_sessions
from kb.text.counted import most_first
from kb.text.file_names import on_disk, storable
from kb.text.nearest import nearest

MOST_FILES = 50
MOST_KEY_FILES = 20
MOST_EVENTS = 50
MOST_SESSIONS = 20


def project_overview(
    project: ProjectInUse, collections: Sequence[CollectionInfo]
) -> dict[str, Any]:
    """Name, stack, modules, key files and sizes of the project; collections of all its files."""
    root = project.root
    files = _project_files(project)
    modules = Counter(module_of(file.path) for file in files)
    sizes: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for file in files:
        sizes[module_of(file.path)] += file.size
        languages[language_of(file.path) or "other"] += 1
    with project.knowledge.database.read() as connection:
        discoveries = Counter(row.get("module", "") for row in all_discoveries(connection))
        key_files = [
            {"path": file.path, "score": round(file.score, 4), "reads": file.access_count}
            for file in file_scores(connection)
            if not file.is_archived
        ]
    active = project.active
    overview: dict[str, Any] = {
        "name": active.project.config.project_name if active else storable(root.name),
        **({"branch": active.project.branch} if active else {}),
        "stack": read_stack(root, (file.path for file in files)) if files else [],
        "languages": dict(most_first(languages)),
        "modules": [
            {"name": name, "files": n, "bytes": sizes[name], "discoveries": discoveries[name]}
            for name, n in most_first(modules)
            if name
        ],
        "keyFiles": key_files[:MOST_KEY_FILES],
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "collections": [
            {
                "collection": info.collection,
                **({"collectionId": info.collection_id} if info.collection_id else {}),
                "kind": info.kind,
                "documents": info.document_count,
            }
            for info in collections
        ],
        "discoveries": discoveries.total(),
    }
    if not files:
        overview["notice"] = f"the project's files are not at {root}: only stored text is known"
    return overview


def module_overview(project: ProjectInUse, name: str) -> dict[str, Any]:
    """A module's files, those read most and last first, and what was learned about it. Raises
    ModuleNotFound if neither a file nor a discovery belongs to it."""
    by_module: dict[str, list[SourceFile]] = {}
    for file in _project_files(project):
        by_module.setdefault(module_of(file.path).casefold(), []).append(file)
    with project.knowledge.database.read() as connection:
        discoveries = all_discoveries(connection)
        scores = {file.path: file.score for file in file_scores(connection)}
    learned = [row for row in discoveries if row.get("module", "").casefold() == name.casefold()]
    files = by_module.get(name.casefold(), []) if name else []
    if not files and not learned:
        names = {*by_module, *(row.get("module", "") for row in discoveries)} - {""}
        near = nearest(name, sorted(names))
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ModuleNotFound(f'Module "{name}" not found.{hint}', module=name, suggestions=near)
    files.sort(key=lambda file: (-scores.get(file.path, 0.0), file.path))
    return {
        "name": name,
        "files": [
            {
                "path": file.path,
                "bytes": file.size,
                "language": language_of(file.path),
                "role": role_of(file.path),
                **({"score": round(scores[file.path], 4)} if file.path in scores else {}),
            }
            for file in files[:MOST_FILES]
        ],
        "totalFiles": len(files),
        "bytes": sum(file.size for file in files),
        "discoveries": learned,
    }


def module_names(project: ProjectInUse) -> list[str]:
    """The modules that contain files, or about which something was learned."""
    with project.knowledge.database.read() as connection:
        learned = {row.get("module", "") for row in all_discoveries(connection)}
    return sorted({*learned, *(module_of(file.path) for file in _project_files(project))} - {""})


def current_session(database: Database, session_id: str) -> dict[str, Any]:
    if not session_id:
        return {"session": "none", "notice": "no session is under way: one begins with a client"}
    with database.read() as connection:
        rows = newest_sessions(connection, MOST_SESSIONS)
        session = next((row for row in rows if row["id"] == session_id), {"id": session_id})
        queries, recorded = (
            details_of_session(connection, session_id, kind, MOST_EVENTS)
            for kind in ("query", "discovery")
        )
        ids = {row["detail"] for row in recorded}
        return {
            **_without_none(session),
            "filesRead": files_of_session(connection, session_id, MOST_EVENTS),
            "queries": [
                {"tool": row["tool"], "query": row["detail"], "date": row["happened_at"]}
                for row in queries
            ],
            "discoveries": [row for row in all_discoveries(connection) if row["id"] in ids],
        }


def recent_sessions(database: Database) -> dict[str, Any]:
    """The newest sessions, each with counts of what happened in it."""
    with database.read() as connection:
        rows = newest_sessions(connection, MOST_SESSIONS)
    return {"sessions": [*map(_without_none, rows)]}


def _without_none(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


def _project_files(project: ProjectInUse) -> list[SourceFile]:
    """The files of the project that the tools show; none if only its knowledge base was copied."""
    if not files_are_here(project):
        return []
    exclude = [f"{name}/" for name in SKIPPED_FOLDERS]
    try:
        files = walk(project.root, ["*"], exclude, report=lambda path, message: None, hidden=True)
        return [file for file in files if not is_hidden_from_tools(file.path)]
    except SourceError:
        return []


# What a project is made of, as its package manifests say. They are read, never run


MAXIMUM_BYTES = 1_000_000
MOST_MANIFESTS = 20
MOST_DEPENDENCIES = 30


def read_stack(root: Path, paths: Iterable[str]) -> list[dict[str, Any]]:
    """One row per manifest, the nearest to the root first; of a broken one just its name."""
    manifests = [path for path in paths if PurePosixPath(path).name in MANIFESTS]
    manifests.sort(key=lambda path: (path.count("/"), path))
    rows = []
    for path in manifests[:MOST_MANIFESTS]:
        language, read = MANIFESTS[PurePosixPath(path).name]
        row: dict[str, Any] = {"manifest": path, "language": language}
        try:
            text = read_bytes(root / on_disk(path), MAXIMUM_BYTES).decode("utf-8-sig")
            row |= {key: value for key, value in read(text).items() if value}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            # It may be anybody's file, with anything in place of what we look for.
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


def _requirements(text: str) -> dict[str, Any]:
    lines = [line.strip() for line in text.splitlines()]
    return _row(None, None, [_requirement(line) for line in lines if line[:1].isalnum()])


def _by_expressions(name: str, dependency: str) -> Callable[[str], dict[str, Any]]:
    """Reads a name by one expression and dependencies by another."""

    def read(text: str) -> dict[str, Any]:
        names = re.findall(name, text, re.MULTILINE) if name else []
        return _row(names[0] if names else None, None, re.findall(dependency, text, re.MULTILINE))

    return read


def _pom(text: str) -> dict[str, Any]:
    # By expression, since an XML parser expands what a hostile file defines.
    named = re.findall(r"<artifactId>\s*([^<\s]+)\s*</artifactId>", text)
    return _row(named[0] if named else None, None, named[1:])


_GRADLE = _by_expressions("", r"""(?:implementation|api)\s*+\(?+\s*+["']([^"']+)["']""")
MANIFESTS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "pyproject.toml": ("Python", _pyproject),
    "requirements.txt": ("Python", _requirements),
    "package.json": ("JavaScript", _package_json),
    "Cargo.toml": ("Rust", _cargo),
    "go.mod": (
        "Go",
        _by_expressions(
            r"^module[ \t]++(\S++)", r"^(?:require[ \t]++|\t)([\w.-]++/\S++)[ \t]++v\S++[ \t]*+$"
        ),
    ),
    "pom.xml": ("Java", _pom),
    "build.gradle": ("Java", _GRADLE),
    "build.gradle.kts": ("Kotlin", _GRADLE),
    "Gemfile": ("Ruby", _by_expressions("", r"""^[ \t]*+gem[ \t]++["']([^"']++)""")),
    "CMakeLists.txt": ("C++", _by_expressions(r"(?i)\bproject\s*\(\s*([\w.-]+)", "(?!)")),
}


def _row(name: Any, version: Any, dependencies: Iterable[Any]) -> dict[str, Any]:
    listed = [name for name in dependencies if isinstance(name, str) and name]
    return {
        "name": name if isinstance(name, str) else None,
        "version": version if isinstance(version, str) else None,
        "dependencies": list(dict.fromkeys(listed))[:MOST_DEPENDENCIES],
    }


def _requirement(text: Any) -> str:
    match = re.match(r"[\w.-]+", text) if isinstance(text, str) else None
    return match[0] if match else ""
