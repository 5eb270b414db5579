"""The external documentation of a project: its row and collection, synced and embedded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from kb.errors import ConfigurationError, EmbeddingError
from kb.ingest.follow import embed_for
from kb.ingest.registration import Plan, Registration
from kb.ingest.report import Progress, SyncReport
from kb.ingest.sync import sync_collection
from kb.model_in_use import ModelInUse
from kb.project.in_use import ActiveProject, ExternalDocs, Project
from kb.store.collections import store_collection, unstored_row
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.documents import delete_collection
from kb.store.projects import (
    external_collection,
    find_project,
    move_project,
    project_roots,
    store_project,
)
from kb.text.file_names import on_disk, storable


@dataclass(slots=True)
class Activation:
    active: ActiveProject
    report: SyncReport | None  # None: no external docs
    warnings: list[str] = field(default_factory=list)
    waiting: bool = False  # some passages are not embedded yet


def bring_up(
    database: Database, model: ModelInUse, project: Project, progress: Progress, seconds: float
) -> Activation:
    """Store the project's row and collection; sync and embed its documents."""
    _take_along(database, project)
    docs = project.config.external_docs
    if docs is None or project.docs_folder is None:
        with database.write() as connection:
            project_id = store_project(connection, project.key, storable(project.root))
            if (stored := external_collection(connection, project_id)) is not None:
                delete_collection(connection, stored["collection_id"])
        active = ActiveProject(project, project_id, None)
        return Activation(active, None, list(project.warnings))
    registration = _ExternalDocs(project, docs, project.docs_folder)
    # Inside the project, or allowed by the user.
    database.mark.confirm_source(storable(project.docs_folder))
    # The folder exists, so if its last document goes, these docs become empty too.
    report = sync_collection(database, registration, may_become_empty=True, progress=progress)
    with database.read() as connection:
        stored_id = find_project(connection, project.key)
        collection = external_collection(connection, stored_id)
    assert stored_id is not None
    assert collection is not None
    active = ActiveProject(project, stored_id, collection)
    result = Activation(active, report, list(project.warnings))
    if not report.total:
        result.warnings.append(
            f"no file in {docs.path} matches {', '.join(docs.include_patterns)}: check "
            "external_docs.include_patterns and exclude_patterns"
        )
    try:
        result.waiting = embed_for(model, collection["collection_id"], seconds, progress)
    except EmbeddingError as error:
        result.warnings.append(f"the documents are not embedded, so none is found: {error.message}")
    return result


def _take_along(database: Database, project: Project) -> None:
    """Keep what is stored of a project that was moved together with its file: one whose name has
    one other place, which is gone, while the file is inside the project, so that it is nobody
    else's."""
    root = project.root.resolve()
    if database.in_memory or not database.path.resolve().is_relative_to(root):
        return
    with database.read() as connection:
        roots = project_roots(connection, project.key["name"])
    gone = [old for old, place in roots.items() if not Path(on_disk(place)).exists()]
    if project.path_hash in roots or len(gone) != 1:
        return
    with database.write() as connection:
        move_project(connection, project.key, gone[0], storable(project.root))


def as_stored(database: Database, project: Project) -> Activation:
    """A project in a read-only file, with the documents that are in it."""
    with database.read() as connection:
        if (stored_id := find_project(connection, project.key)) is None:
            raise ConfigurationError(
                f"this file is only read, and the project {project.config.project_name} is not in "
                "it: activate it where the file is written"
            )
        active = ActiveProject(project, stored_id, external_collection(connection, stored_id))
    warning = "the file is only read: its documents are as stored, not as in their folder"
    return Activation(active, None, [*project.warnings, warning])


@dataclass(frozen=True, slots=True)
class _ExternalDocs(Registration):
    """The registration of a project and its external docs, made once these have been read."""

    project: Project
    docs: ExternalDocs
    folder: Path
    keeps_empty: bool = True

    def plan(self, connection: Connection) -> Plan:
        key = self.project.key
        stored = external_collection(connection, find_project(connection, key)) or {}
        globs = {
            "include": json.dumps(self.docs.include_patterns, ensure_ascii=False),
            "exclude": json.dumps(self.docs.exclude_patterns, ensure_ascii=False),
        }
        row = unstored_row(f"external/{'/'.join(key.values())}", kind="external")
        planned = {**row, **stored, "source": storable(self.folder), **globs}
        return Plan(planned, is_stored=stored == planned and stored["synced_at"] is not None)

    def store(self, connection: Connection) -> int:
        project_id = store_project(connection, self.project.key, storable(self.project.root))
        return store_collection(connection, {**self.plan(connection).row, "project_id": project_id})
