"""The project in use, activated, with its external docs in the file and followed; and a project as
its configuration file and git describe it, neither of which is trusted.

A cloned repository brings both along. So a configuration names documents inside the project only
(unless the user allows more), nothing in it is run and no model is taken from it; git's files are
read, git itself is not started.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kb.disk.git import git_branch
from kb.disk.read import is_there, read_bytes, reason
from kb.disk.watch import FolderWatcher
from kb.errors import ConfigurationError, KbError, PermissionDenied
from kb.formats.metadata import RESEARCH, URL_CONTENT
from kb.ingest.report import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.open_file import OpenFile
from kb.settings import user_configuration
from kb.store.projects import external_collection, find_project, path_hash
from kb.text.json_text import JsonError, parse_json
from kb.text.nearest import nearest

if TYPE_CHECKING:
    from kb.project.external_docs import Activation


CONFIG_FILES = (".kb/config.json", ".csharp-compounding-docs/config.json")
MAXIMUM_CONFIG_BYTES = 1_000_000

Patterns = list[Annotated[str, Field(min_length=1, max_length=500)]]


class ExternalDocs(BaseModel):
    """Where a project keeps documentation that is searched but never written."""

    model_config = ConfigDict(strict=True)

    path: Annotated[str, Field(min_length=1)]
    include_patterns: Patterns = ["**/*.md"]
    exclude_patterns: Patterns = ["**/node_modules/**"]


class SemanticSearch(BaseModel):
    """Settings that override a search's own parameters."""

    model_config = ConfigDict(strict=True)

    min_relevance_score: Annotated[float, Field(ge=0, le=1)] | None = None
    default_limit: Annotated[int, Field(ge=1, le=100)] | None = None


class ProjectConfig(BaseModel):
    """What kb reads of a configuration file; other programs' keys are ignored."""

    model_config = ConfigDict(strict=True)

    project_name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=100)]
    external_docs: ExternalDocs | None = None
    semantic_search: SemanticSearch | None = None
    archives: Any = None  # read by kb/project/in_use.py: an error there stops no activation


@dataclass(frozen=True, slots=True)
class Project:
    """A project on one branch in one folder: a tenant of the file."""

    root: Path  # absolute, links resolved
    config_file: str  # as people know it: relative to the root, with "/"
    config: ProjectConfig
    branch: str
    branch_is_given: bool  # by the caller, not read from git
    docs_folder: Path | None  # absolute, links resolved; None: no external docs
    warnings: tuple[str, ...]

    @property
    def path_hash(self) -> str:
        return path_hash(self.root)

    @property
    def key(self) -> dict[str, str]:
        """Identifies its row in the file."""
        return {
            "name": self.config.project_name,
            "branch": self.branch,
            "path_hash": self.path_hash,
        }


@dataclass(frozen=True, slots=True)
class ActiveProject:
    """The project whose external docs are searched."""

    project: Project
    project_id: int
    collection: dict[str, Any] | None  # row of the external docs; None: not configured


def load_project(
    config_path: str = "", branch: str = "", *, start: Path, allowed: Sequence[Path] = ()
) -> Project:
    """Read and check a project's configuration, and find its branch.

    Args:
        config_path: a configuration file or a project's folder; "": searched from `start` upwards.
        branch: "": read from git.
        allowed: folders outside the project that external docs may be in.

    Raises ConfigurationError, which lists all that is wrong with the file.
    """
    file = _named_config(config_path, start) if config_path else find_config(start)
    name = f"{file.parent.name}/{file.name}"
    root = file.parent.parent.resolve()
    content = read_json(file, name)
    problems, config = _validated(content)
    docs_folder = None
    raw_docs = content.get("external_docs") if isinstance(content, dict) else None
    raw_docs = raw_docs if isinstance(raw_docs, dict) else {}
    raw_path = raw_docs.get("path")
    if isinstance(raw_path, str) and raw_path:
        docs_folder, problem = folder_inside(root, raw_path, allowed)
        if problem:
            problems.setdefault("external_docs.path", []).append(problem)
    for key in ("include_patterns", "exclude_patterns"):
        for where, problem in _wrong_patterns(raw_docs.get(key)):
            problems.setdefault(f"external_docs.{key}{where}", []).append(problem)
    if problems or config is None:
        texts = [f"{where}: {text}" for where, listed in problems.items() for text in listed]
        raise ConfigurationError(
            f"{name} cannot be used: {'; '.join(texts)}",
            configFile=name,
            path=str(file),
            fieldErrors=problems,
        )
    return Project(
        root=root,
        config_file=name,
        config=config,
        branch=branch or git_branch(root),
        branch_is_given=bool(branch),
        docs_folder=docs_folder,
        warnings=tuple(_unknown_keys(content, name)),
    )


def find_config(start: Path) -> Path:
    """The configuration file of the nearest folder upwards; raises ConfigurationError."""
    start = start.absolute()
    for folder in (start, *start.parents):
        for name in CONFIG_FILES:
            if is_there(folder / name):
                return folder / name
    raise ConfigurationError(
        f"no project configuration found in {start} or any folder above it: create "
        f'{CONFIG_FILES[0]} with {{"project_name": "my-project"}}, or name a file with config_path',
        searchedFrom=str(start),
        configFiles=list(CONFIG_FILES),
    )


def allowed_folders(given: Sequence[str], warn: Callable[[str], None]) -> tuple[Path, ...]:
    """Folders outside a project that external docs may be in: those of the command line, and
    `external_docs.allowed_paths` of the user's own config.json. `warn` hears what is wrong with
    that file, which then allows nothing.
    """
    file = user_configuration() / "config.json"
    texts = list(given)
    if is_there(file):
        try:
            content = read_json(file, str(file))
            section = content.get("external_docs", {}) if isinstance(content, dict) else None
            paths = section.get("allowed_paths", []) if isinstance(section, dict) else None
            if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
                texts += paths
            else:
                shape = '{"external_docs": {"allowed_paths": ["/a/folder"]}}'
                warn(f"{file} must hold {shape}; it allows no folder")
        except ConfigurationError as error:
            warn(f"{error.message}; it allows no folder")
    folders = []
    for text in texts:
        try:
            folders.append(Path(text).expanduser().resolve())
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, or ~nobody
            warn(f"the allowed folder {text!r} is not a path: {error}")
    return tuple(folders)


def _named_config(config_path: str, start: Path) -> Path:
    try:
        path = (start / Path(config_path).expanduser()).absolute()
        # The file, the project's folder, or the file's own folder. A file of another name is
        # refused: its folder, which the tools could then read, need not be a project.
        candidates = [path, *(path / name for name in CONFIG_FILES), path / "config.json"]
        for file in candidates:
            if f"{file.parent.name}/{file.name}" in CONFIG_FILES and is_there(file):
                return file
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, or ~nobody
        raise ConfigurationError(f"config_path {config_path!r} is not a path: {error}") from error
    raise ConfigurationError(
        f"there is no configuration file {path}: create it, or give the path of "
        f"{' or '.join(CONFIG_FILES)}",
        path=str(path),
    )


def read_json(file: Path, name: str) -> Any:
    try:
        return parse_json(read_bytes(file.resolve(), MAXIMUM_CONFIG_BYTES))
    except OSError as error:
        raise ConfigurationError(f"cannot read {name}: {reason(error)}", path=str(file)) from error
    except (JsonError, RuntimeError) as error:  # a loop of links
        why = f"{name} is not JSON that can be read: {error}"
        raise ConfigurationError(why, path=str(file)) from error


def _validated(content: Any) -> tuple[dict[str, list[str]], ProjectConfig | None]:
    problems: dict[str, list[str]] = {}
    try:
        return problems, ProjectConfig.model_validate(content)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            key = ".".join(str(part) for part in problem["loc"]) or "(the file)"
            text = problem["msg"][0].lower() + problem["msg"][1:]
            if key == "project_name" and problem["type"] == "string_pattern_mismatch":
                text = "must be lower-case letters, digits and hyphens, starting with a letter"
            elif problem["type"] == "missing":
                text = "is required"
            elif problem["type"] == "model_type":
                text = "must be a JSON object"
            problems.setdefault(key, []).append(text)
        return problems, None


def _wrong_patterns(patterns: Any) -> Iterator[tuple[str, str]]:
    """The unusable patterns, and why; "" stands for all if there are too many."""
    if not isinstance(patterns, list):
        return
    from kb.disk.globs import unusable  # here: most projects have no pattern

    why = unusable([text for text in patterns if isinstance(text, str)])
    if None in why:
        yield "", why[None]
    for place, text in enumerate(patterns):
        if isinstance(text, str) and text in why:
            yield f".{place}", why[text]


def folder_inside(root: Path, path: str, allowed: Sequence[Path]) -> tuple[Path | None, str]:
    """A folder that a configuration names, and what is wrong with it."""
    try:
        folder = (root / path.replace("\\", "/")).resolve()
        if not any(folder.is_relative_to(place) for place in (root, *allowed)):
            return None, (
                f"{path} leads out of the project: only the user can allow that, with "
                "`kb serve --allow-docs FOLDER` or external_docs.allowed_paths in the user's own "
                "kb configuration"
            )
        if not folder.exists():
            return None, f"{path} does not exist"
        if not folder.is_dir():
            return None, f"{path} is a file, not a folder"
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a loop of links
        return None, f"{path!r} is not a usable path: {error}"
    return folder, ""


def _unknown_keys(content: dict[str, Any], name: str) -> list[str]:
    """Keys that look misspelt. Other programs' keys are none of our business."""
    models: list[tuple[str, Any, type[BaseModel]]] = [
        ("", content, ProjectConfig),
        ("external_docs.", content.get("external_docs"), ExternalDocs),
        ("semantic_search.", content.get("semantic_search"), SemanticSearch),
    ]
    warnings = []
    for prefix, values, model in models:
        for key in values if isinstance(values, dict) else ():
            near = nearest(key, model.model_fields, limit=1)
            if key not in model.model_fields and near:
                meant = f'did you mean "{prefix}{near[0]}"?'
                warnings.append(f'{name}: the key "{prefix}{key}" is not used; {meant}')
    return warnings


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
        # Whose external docs are searched; None before the first activation.
        self.active: ActiveProject | None = None
        self._watcher: FolderWatcher | None = None  # keeps the active project's docs in sync
        self._keeps_fresh = False

    @property
    def root(self) -> Path:
        """The folder of the project whose files the tools read."""
        return self.active.project.root if self.active else self.knowledge.project

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
            self.active = result.active
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
            allowed = allowed_folders(self._allowed_docs, partial(log.warning, "%s"))
            project = load_project(start=self._start(), allowed=allowed)
        except ConfigurationError:
            return
        with self.knowledge.database.read() as connection:
            if (project_id := find_project(connection, project.key)) is not None:
                collection = external_collection(connection, project_id)
                self.active = ActiveProject(project, project_id, collection)

    def refresh(self) -> bool:
        """Sync the active project's docs, on the branch checked out by now; whether some still wait
        to be embedded."""
        from kb.ingest.follow import SLICE_SECONDS
        from kb.project.external_docs import bring_up

        with self.knowledge.sync_lock:
            active = self.active
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
            if self.active is active:
                self._follow(result.active)
            return result.waiting

    def _follow(self, active: ActiveProject) -> None:
        old, self.active = self.active, active
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
