"""What kb depends on: Python, SQLite, ripgrep, models, disk space, configuration."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from kb.disk.aliases import load_aliases
from kb.disk.ripgrep import ripgrep_version
from kb.errors import ConfigurationError, EmbeddingError, KbError
from kb.ingest.follow import VARIABLES
from kb.models.choose import how_to_get, make_embedder, packaged_models
from kb.models.embedder import sends_to
from kb.project.config import allowed_folders, find_config, load_project
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.settings import DATABASE_VARIABLES, VERSION, paths_named_by
from kb.store.database import Database

ROOM = 2  # copies of the file that should fit on the disk: a migration makes one


def program() -> Iterator[Finding]:
    """Python, kb, and the libraries that they load."""
    yield Finding(
        "environment",
        SOUND,
        f"kb {VERSION}, Python {platform.python_version()} ({sys.executable}), "
        f"{platform.system()} {platform.machine()}",
    )
    try:
        with Database(":memory:") as database, database.read() as connection:
            versions = connection.versions()
    except KbError as error:
        yield Finding("SQLite", BROKEN, error.message, f"`{_reinstall()}`")
    else:
        yield Finding(
            "SQLite", SOUND, f"{versions['sqlite']} with FTS5, sqlite-vec {versions['vector']}"
        )
    try:
        yield Finding("ripgrep", SOUND, ripgrep_version())
    except ConfigurationError as error:
        yield Finding(
            "ripgrep", HINT, f"{error.message} `kb grep` does not work without", f"`{_reinstall()}`"
        )


def models(current: str | None) -> Iterator[Finding]:
    """The packaged models, and the file's own, `current`, if it is another."""
    for name, check in packaged_models().items():
        try:
            check()
        except EmbeddingError as error:
            state = BROKEN if name == current else HINT
            yield Finding("models", state, error.message, how_to_get(name))
        else:
            yield Finding("models", SOUND, f"{name} is installed, and is the one it should be")
    if current is not None and current not in packaged_models():
        try:
            make_embedder(current).embed(["hello"])
        except EmbeddingError as error:
            yield Finding(
                "models",
                BROKEN,
                f"the model of the file cannot be used, searches use keywords alone: "
                f"{error.message}",
                how_to_get(current),
            )
        else:
            host = sends_to(current)
            sent = f"; texts and questions are sent to {host}" if host else ""
            yield Finding("models", SOUND, f"{current}, the model of the file, can be used{sent}")


def disk(path: Path) -> Iterator[Finding]:
    """Space beside the file, and whether it can be written."""
    folder = path.parent
    try:
        free, size = shutil.disk_usage(folder).free, path.stat().st_size
    except OSError:
        return
    if free < ROOM * size:
        yield Finding(
            "disk",
            HINT,
            f"{free / 1e6:.0f} MB are free in {folder}, the file has {size / 1e6:.0f} MB: a "
            "migration or `kb copy` may not fit",
            "make room",
        )
    if not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
        yield Finding(
            "disk",
            HINT,
            f"{path} cannot be written: searches work, syncs do not",
            "copy it to a writable folder to change it",
        )


def configuration(project: Path, collections: set[str]) -> Iterator[Finding]:
    """Alias files, the project's and the user's configuration, and environment variables."""
    complaints: list[str] = []
    aliases = load_aliases(project, complaints.append)
    for alias, target in aliases.items():
        if target not in collections:
            complaints.append(
                f'the alias "{alias}" names the collection "{target}", which does not exist'
            )
    allowed = allowed_folders((), complaints.append)
    complaints += _project_complaints(project, allowed)
    complaints += _variable_complaints()
    for complaint in complaints:
        yield Finding("configuration", HINT, complaint, "mend or remove it")
    if not complaints:
        yield Finding("configuration", SOUND, "nothing is wrong with it")


def _project_complaints(project: Path, allowed: tuple[Path, ...]) -> list[str]:
    try:
        find_config(project)
    except ConfigurationError:
        return []  # a project need not have one
    try:
        return list(load_project(start=project, allowed=allowed).warnings)
    except ConfigurationError as error:
        return [error.message]


def _variable_complaints() -> list[str]:
    complaints = [
        f"{variable} names {path}, which does not exist"
        for variable in DATABASE_VARIABLES
        for path in paths_named_by(variable)
        if not path.exists()
    ]
    for variable in VARIABLES:
        value = os.environ.get(variable)
        if value and not Path(value).expanduser().is_dir():
            complaints.append(f"{variable} names {value}, which is not a folder")
    return complaints


def _reinstall() -> str:
    return "pip install --force-reinstall kbfile"
