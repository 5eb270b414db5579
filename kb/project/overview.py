"""A project at a glance, one of its modules, and what was done in sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kb.disk.grep import SKIPPED_FOLDERS
from kb.disk.inside import is_hidden_from_tools
from kb.errors import ModuleNotFound, SourceError
from kb.ingest.discoveries import all_discoveries
from kb.project.in_use import ProjectInUse
from kb.project.manifests import read_stack
from kb.project.source_files import language_of, module_of, role_of
from kb.project.tree import tree_is_here
from kb.sources.folder import walk
from kb.store.connection import Connection
from kb.store.contents import count_documents
from kb.store.database import Database
from kb.store.session_history import details_of_session, files_of_session, newest_sessions
from kb.store.sessions import file_scores
from kb.text.counted import most_first
from kb.text.file_names import storable
from kb.text.nearest import nearest

__all__ = [
    "current_session",
    "module_names",
    "module_overview",
    "project_overview",
    "recent_sessions",
]

MOST_FILES = 50
MOST_KEY_FILES = 20
MOST_EVENTS = 50
MOST_SESSIONS = 20


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int  # bytes


def project_overview(project: ProjectInUse) -> dict[str, Any]:
    """Name, stack, modules, key files and sizes of the project."""
    root = project.root
    files = _project_files(project)
    modules = Counter(module_of(file.path) for file in files)
    sizes: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for file in files:
        sizes[module_of(file.path)] += file.size
        languages[language_of(file.path) or "other"] += 1
    with project.knowledge.database.read() as connection:
        discoveries = Counter(one.get("module", "") for one in all_discoveries(connection))
        key_files = [
            {"path": file.path, "score": round(file.score, 4), "reads": file.access_count}
            for file in file_scores(connection)
            if not file.is_archived
        ]
        collections = [
            {
                **project.knowledge.names.shown(row),
                "kind": row["kind"],
                "documents": count_documents(connection, row["collection_id"]),
            }
            for row in project.knowledge.names.collections(connection)
        ]
    active = project.active
    overview: dict[str, Any] = {
        "name": active.project.config.project_name if active else storable(root.name),
        **({"branch": active.project.branch} if active else {}),
        "stack": read_stack(root, (file.path for file in files)) if files else [],
        "languages": dict(most_first(languages)),
        "modules": [
            {
                "name": name,
                "files": count,
                "bytes": sizes[name],
                "discoveries": discoveries[name],
            }
            for name, count in sorted(modules.items(), key=lambda item: (-item[1], item[0]))
            if name
        ],
        "keyFiles": key_files[:MOST_KEY_FILES],
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "collections": collections,
        "discoveries": discoveries.total(),
    }
    if not files:
        overview["notice"] = f"the project's files are not at {root}: only stored text is known"
    return overview


def module_overview(project: ProjectInUse, name: str) -> dict[str, Any]:
    """A module's files, those read most and last first, and what was learned about it.

    Raises:
        ModuleNotFound: neither a file nor a discovery belongs to it.
    """
    by_module: dict[str, list[_File]] = {}
    for file in _project_files(project):
        by_module.setdefault(module_of(file.path).casefold(), []).append(file)
    with project.knowledge.database.read() as connection:
        discoveries = all_discoveries(connection)
        scores = {file.path: file.score for file in file_scores(connection)}
    learned = [one for one in discoveries if one.get("module", "").casefold() == name.casefold()]
    files = by_module.get(name.casefold(), []) if name else []
    if not files and not learned:
        known = sorted({*filter(None, by_module), *(one.get("module", "") for one in discoveries)})
        near = nearest(name, filter(None, known))
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
    """The modules that hold files, or of which something was learned."""
    with project.knowledge.database.read() as connection:
        learned = {one.get("module", "") for one in all_discoveries(connection)}
    return sorted({*learned, *(module_of(file.path) for file in _project_files(project))} - {""})


def current_session(database: Database, session_id: str) -> dict[str, Any]:
    """What happened in the session under way."""
    if not session_id:
        return {"session": "none", "notice": "no session is under way: one begins with a client"}
    with database.read() as connection:
        rows = newest_sessions(connection, MOST_SESSIONS)
        known = next((row for row in rows if row["id"] == session_id), {"id": session_id})
        return {
            **{key: value for key, value in known.items() if value is not None},
            "filesRead": files_of_session(connection, session_id, MOST_EVENTS),
            "queries": [
                {"tool": row["tool"], "query": row["detail"], "date": row["happened_at"]}
                for row in _details(connection, session_id, "query")
            ],
            "discoveries": _session_discoveries(connection, session_id),
        }


def recent_sessions(database: Database) -> dict[str, Any]:
    """The newest sessions, each with the numbers of what happened in it."""
    with database.read() as connection:
        rows = newest_sessions(connection, MOST_SESSIONS)
    return {
        "sessions": [
            {key: value for key, value in row.items() if value is not None} for row in rows
        ]
    }


def _session_discoveries(connection: Connection, session_id: str) -> list[dict[str, Any]]:
    ids = {row["detail"] for row in _details(connection, session_id, "discovery")}
    return [one for one in all_discoveries(connection) if one["id"] in ids]


def _details(connection: Connection, session_id: str, kind: str) -> list[dict[str, Any]]:
    return details_of_session(connection, session_id, kind, MOST_EVENTS)


def _project_files(project: ProjectInUse) -> list[_File]:
    """The files of the project that the tools show; none where only its file was copied."""
    with project.knowledge.database.read() as connection:
        if not tree_is_here(project, connection):
            return []
    exclude = [f"{name}/" for name in SKIPPED_FOLDERS]
    try:
        found = walk(project.root, ["*"], exclude, report=lambda path, message: None, hidden=True)
        return [_File(f.path, f.size) for f in found if not is_hidden_from_tools(f.path)]
    except SourceError:
        return []
