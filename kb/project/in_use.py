"""The project in use: activated with its row, its external docs in the file, its watcher."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kb.disk.git import git_branch
from kb.disk.watch import FolderWatcher
from kb.errors import ConfigurationError, EmbeddingError, KbError
from kb.ingest.embed import Progress, no_progress
from kb.ingest.follow import SLICE_SECONDS, embed_for
from kb.ingest.registration import Plan, planned_row
from kb.ingest.sync import SyncReport, sync_collection
from kb.knowledge_base import KnowledgeBase
from kb.model_in_use import ModelInUse
from kb.project.archives import configured_archives
from kb.project.config import (
    ActiveProject,
    ExternalDocs,
    Project,
    allowed_folders,
    find_config,
    load_project,
)
from kb.store.collections import insert_collection, update_collection
from kb.store.database import Connection
from kb.store.documents import delete_collection
from kb.store.projects import external_collection, find_project, store_project
from kb.text.file_names import storable

log = logging.getLogger("kb.activation")


@dataclass(slots=True)
class Activation:
    """What an activation did."""

    active: ActiveProject
    report: SyncReport | None  # None: no external docs
    warnings: list[str] = field(default_factory=list)
    waiting: bool = False  # some passages are not embedded yet


class ProjectInUse:
    """The project that a client works in, and the one it activated.

    Args:
        knowledge: the file, and where to look for a configuration.
        model: what embeds external docs.
        allowed_docs: folders outside a project that its external docs may lie in.
    """

    def __init__(
        self, knowledge: KnowledgeBase, model: ModelInUse, allowed_docs: Sequence[str] = ()
    ) -> None:
        self.knowledge = knowledge
        self.model = model
        self._allowed_docs = allowed_docs
        self._active: ActiveProject | None = None
        self._keeps_fresh = False

    @property
    def active(self) -> ActiveProject | None:
        """The project whose external docs are searched; None before the first activation."""
        return self._active

    @property
    def root(self) -> Path:
        """The folder of the project whose files the tools read."""
        return self._active.project.root if self._active else self.knowledge.project

    def archives(self) -> tuple[dict[str, tuple[Path, str]], list[str]]:
        """The archives that the project's configuration names: see `configured_archives`."""
        problems: list[str] = []
        allowed = allowed_folders(self._allowed_docs, problems.append)
        found, wrong = configured_archives(self._start(), allowed)
        return found, [*problems, *wrong]

    def keep_fresh(self) -> None:
        """Follow the folders of projects that are activated from now on: a server does."""
        self._keeps_fresh = True

    def stop(self) -> None:
        """End what runs in the background."""
        if self._active is not None:
            self._active.stop()

    def activate(
        self,
        config_path: str = "",
        branch: str = "",
        *,
        progress: Progress | None = None,
        seconds: float = math.inf,
    ) -> Activation:
        """Make a project the active one, with its external docs in line with its folder.

        The project that was active stays so until this one is ready, then its watcher ends.

        Args:
            seconds: embed for about so long; the rest is left to the watcher.

        Raises:
            ConfigurationError: the configuration is missing or cannot be used.
        """
        warnings: list[str] = []
        allowed = allowed_folders(self._allowed_docs, warnings.append)
        project = load_project(config_path, branch, start=self._start(), allowed=allowed)
        with self.knowledge.sync_lock:
            wait = seconds if self._keeps_fresh else math.inf
            result = self._bring_up(project, progress or no_progress, wait)
            result.warnings = [*warnings, *result.warnings]
            self.stop()
            self._active = result.active
            if self._keeps_fresh and project.docs_folder is not None:
                watcher = FolderWatcher(
                    project.docs_folder, self.refresh, self.knowledge.database.path
                )
                result.active.stop = watcher.stop
                watcher.start()
        return result

    def restore(self) -> None:
        """Take up the project of the working directory if an earlier command activated it."""
        try:
            allowed = allowed_folders(
                self._allowed_docs, lambda message: log.warning("%s", message)
            )
            project = load_project(start=self._start(), allowed=allowed)
        except ConfigurationError:
            return
        with self.knowledge.database.read() as connection:
            project_id = find_project(connection, _key(project))
            if project_id is not None:
                collection = external_collection(connection, project_id)
                self._active = ActiveProject(project, project_id, collection)

    def refresh(self) -> bool:
        """Bring the active project's docs in line, on the branch that is checked out by now.

        Returns whether some of them still wait to be embedded.
        """
        with self.knowledge.sync_lock:
            active = self._active
            if active is None or active.collection is None:
                return False
            project = active.project
            try:
                docs = project.config.external_docs
                # A link put in the folder's place since the activation must not lead elsewhere.
                if docs is None or (project.root / docs.path).resolve() != project.docs_folder:
                    log.warning("%s is not the folder it was: activate the project again", docs)
                    return False
                if not project.branch_is_given:
                    project = dataclasses.replace(project, branch=git_branch(project.root))
                result = self._bring_up(project, no_progress, SLICE_SECONDS)
            except KbError as error:
                log.warning("the external docs could not be synced: %s", error.message)
                return False
            if self._active is active:
                result.active.stop = active.stop
                self._active = result.active
            return result.waiting

    def _start(self) -> Path:
        """Where to look for a configuration: the working directory, else the file's project."""
        try:
            find_config(Path.cwd())
        except ConfigurationError:
            return self.knowledge.project
        return Path.cwd()

    def _bring_up(self, project: Project, progress: Progress, seconds: float) -> Activation:
        """The tenant's row and collection, and its documents synced and embedded."""
        database = self.knowledge.database
        docs = project.config.external_docs
        if docs is None or project.docs_folder is None:
            with database.write() as connection:
                project_id = _store_project(connection, project)
                known = external_collection(connection, project_id)
                if known is not None:
                    delete_collection(connection, known["collection_id"])
            active = ActiveProject(project, project_id, None)
            return Activation(active, None, list(project.warnings))
        registration = _ExternalDocs(project, docs, project.docs_folder)
        # The folder is there: when its last document goes, these docs follow the folder.
        report = sync_collection(database, registration, may_become_empty=True, progress=progress)
        with database.read() as connection:
            found = find_project(connection, _key(project))
            collection = external_collection(connection, found)
        assert found is not None
        assert collection is not None
        active = ActiveProject(project, found, collection)
        result = Activation(active, report, list(project.warnings))
        if not report.total:
            result.warnings.append(
                f"no file in {docs.path} matches {', '.join(docs.include_patterns)}: check "
                "external_docs.include_patterns and exclude_patterns"
            )
        try:
            result.waiting = embed_for(self.model, collection["collection_id"], seconds, progress)
        except EmbeddingError as error:
            result.warnings.append(
                f"the documents are not embedded, so none is found: {error.message}"
            )
        return result


@dataclass(frozen=True, slots=True)
class _ExternalDocs:
    """The registration of a project and its external docs: made when they have been read."""

    project: Project
    docs: ExternalDocs
    folder: Path
    keeps_empty: bool = True

    def plan(self, connection: Connection) -> Plan:
        key = _key(self.project)
        project_id = find_project(connection, key)
        known = external_collection(connection, project_id) or {}
        globs = {
            "include": json.dumps(self.docs.include_patterns, ensure_ascii=False),
            "exclude": json.dumps(self.docs.exclude_patterns, ensure_ascii=False),
        }
        row = planned_row(f"external/{'/'.join(key.values())}", kind="external")
        return Plan({**row, **known, "source": storable(self.folder), **globs})

    def store(self, connection: Connection) -> int:
        project_id = _store_project(connection, self.project)
        row = self.plan(connection).row
        if not row["collection_id"]:
            return insert_collection(
                connection,
                row["name"],
                "external",
                source=row["source"],
                include=self.docs.include_patterns,
                exclude=self.docs.exclude_patterns,
                project_id=project_id,
            )
        fields = ("collection_id", "kind", "source", "include", "exclude")
        update_collection(connection, **{name: row[name] for name in fields})
        return int(row["collection_id"])


def _store_project(connection: Connection, project: Project) -> int:
    return store_project(connection, _key(project), storable(project.root))


def _key(project: Project) -> dict[str, str]:
    return {
        "name": project.config.project_name,
        "branch": project.branch,
        "path_hash": project.path_hash,
    }
