"""The project in use: activated, with its external docs in the file and followed."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.disk.git import git_branch
from kb.disk.watch import FolderWatcher
from kb.errors import ConfigurationError, KbError, PermissionDenied
from kb.formats.research import RESEARCH, URL_CONTENT
from kb.ingest.report import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.open_file import OpenFile
from kb.project.config import (
    ActiveProject,
    allowed_folders,
    find_config,
    folder_inside,
    load_project,
    read_json,
)
from kb.store.projects import external_collection, find_project

if TYPE_CHECKING:
    from kb.project.external_docs import Activation

log = logging.getLogger("kb.activation")


class ProjectInUse:
    """The project that a client works in, and the one it activated.

    Args:
        knowledge: the file, and where to look for a configuration.
        allowed_docs: folders outside a project that its external docs may be in.
        may_choose: whether a project other than the one being served may be activated.
    """

    def __init__(
        self,
        knowledge: OpenFile,
        model: ModelInUse,
        allowed_docs: Sequence[str] = (),
        *,
        may_choose: bool = True,
    ) -> None:
        self.knowledge = knowledge
        self.model = model
        self._allowed_docs = allowed_docs
        self._may_choose = may_choose
        self._active: ActiveProject | None = None
        self._watcher: FolderWatcher | None = None  # keeps the active project's docs in sync
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
        if not self.knowledge.has_project:
            return {}, []
        problems: list[str] = []
        allowed = allowed_folders(self._allowed_docs, problems.append)
        archives, wrong = configured_archives(self._start(), allowed)
        return archives, [*problems, *wrong]

    def keep_fresh(self) -> None:
        """Follow the folders of projects that are activated from now on, as a server does."""
        self._keeps_fresh = True

    def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None

    def activate(
        self,
        config_path: str = "",
        branch: str = "",
        *,
        progress: Progress | None = None,
        seconds: float = math.inf,
    ) -> Activation:
        """Make a project the active one, with its external docs in sync with its folder.

        The previous one stays active until this one is ready; then its watcher ends.

        Args:
            seconds: how long to embed; the watcher does the rest.

        Raises:
            ConfigurationError: the configuration is missing or unusable.
            PermissionDenied: another project is being served.
        """
        from kb.project.external_docs import as_stored, bring_up  # here: it loads all that syncs

        if not self.knowledge.has_project:
            raise PermissionDenied(
                "this server has files of several, and no project: ask documents_search for what "
                "is stored"
            )
        if config_path and not self._may_choose:
            raise PermissionDenied(
                "this token is for the project that is served: leave config_path empty"
            )
        warnings: list[str] = []
        allowed = allowed_folders(self._allowed_docs, warnings.append)
        project = load_project(config_path, branch, start=self._start(), allowed=allowed)
        project = dataclasses.replace(project, warnings=(*warnings, *project.warnings))
        if self.knowledge.database.read_only:
            result = as_stored(self.knowledge.database, project)
            self.stop()
            self._active = result.active
            return result
        with self.knowledge.sync_lock:
            wait = seconds if self._keeps_fresh else math.inf
            result = bring_up(
                self.knowledge.database, self.model, project, progress or no_progress, wait
            )
            self._follow(result.active)
            if result.waiting and self._watcher is not None:
                self._watcher.look_again()
        return result

    def restore(self) -> None:
        """Use the project of the working directory if an earlier command activated it."""
        try:
            allowed = allowed_folders(
                self._allowed_docs, lambda message: log.warning("%s", message)
            )
            project = load_project(start=self._start(), allowed=allowed)
        except ConfigurationError:
            return
        with self.knowledge.database.read() as connection:
            if (project_id := find_project(connection, project.key)) is not None:
                collection = external_collection(connection, project_id)
                self._active = ActiveProject(project, project_id, collection)

    def refresh(self) -> bool:
        """Sync the active project's docs, on the branch checked out by now; whether some still wait
        to be embedded."""
        from kb.ingest.follow import SLICE_SECONDS
        from kb.project.external_docs import bring_up

        with self.knowledge.sync_lock:
            active = self._active
            if active is None or active.collection is None:
                return False
            project = active.project
            try:
                docs = project.config.external_docs
                # A link that replaced the folder since the activation must not lead elsewhere.
                if docs is None or (project.root / docs.path).resolve() != project.docs_folder:
                    log.warning("%s is not the folder it was: activate the project again", docs)
                    return False
                if not project.branch_is_given:
                    project = dataclasses.replace(project, branch=git_branch(project.root))
                result = bring_up(
                    self.knowledge.database, self.model, project, no_progress, SLICE_SECONDS
                )
            except KbError as error:
                log.warning("the external docs could not be synced: %s", error.message)
                return False
            if self._active is active:
                self._follow(result.active)
            return result.waiting

    def _follow(self, active: ActiveProject) -> None:
        old, self._active = self._active, active
        folder = active.project.docs_folder
        if self._watcher is not None and old is not None and old.project.docs_folder == folder:
            return  # ending one takes half a second
        self.stop()
        if self._keeps_fresh and folder is not None:
            self._watcher = FolderWatcher(folder, self.refresh, self.knowledge.database.path)
            self._watcher.start()

    def _start(self) -> Path:
        """Where to look for a configuration: the working directory, else the file's project."""
        try:
            find_config(Path.cwd())
        except ConfigurationError:
            return self.knowledge.project
        return Path.cwd()


SOURCES = {"research": RESEARCH, "url_content": URL_CONTENT}  # by key


def configured_archives(
    start: Path, allowed: Sequence[Path]
) -> tuple[dict[str, tuple[Path, str]], list[str]]:
    """By their keys as people know them, the folders of archives and what they hold; and what is
    wrong with those that are unusable. The configuration is looked for from `start` upwards;
    folders in `allowed` may be outside the project."""
    try:
        file = find_config(start)
    except ConfigurationError:
        return {}, []
    name = f"{file.parent.name}/{file.name}"
    try:
        content = read_json(file, name)
    except ConfigurationError as error:
        return {}, [error.message]
    archives: Any = content.get("archives") if isinstance(content, dict) else None
    if archives is None:
        return {}, []
    if not isinstance(archives, dict):
        return {}, [f"{name}: archives must be a JSON object"]
    root = file.parent.parent.resolve()
    folders: dict[str, tuple[Path, str]] = {}
    problems: list[str] = []
    for key, path in archives.items():
        where = f"{name}: archives.{str(key)[:100]}"
        if key not in SOURCES:
            problems.append(f"{where} is not used; there are {' and '.join(SOURCES)}")
            continue
        folder, problem = (None, "must be a path")
        if isinstance(path, str) and path:
            folder, problem = folder_inside(root, path, allowed)
        if folder is None:
            problems.append(f"{where}: {problem}")
        else:
            folders[where] = (folder, SOURCES[key])
    return folders, problems
