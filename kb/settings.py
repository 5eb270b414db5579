"""What kb is, and where things are: its own files, the knowledge base, the project, the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

VERSION = "0.1.0"

# Where the files that come with kb lie. `importlib.resources` would find them in archives too, but
# takes 4 ms of every start to load; what kb runs on does not come in one either.
PACKAGE = Path(__file__).parent

DEFAULT_INDEX = "default"  # the index that is always there
FILE_NAME = Path(".kb") / "kb.db"
LIST_VARIABLE = "KB_DB"
DATABASE_VARIABLES = (LIST_VARIABLE, "SEARCH_DB_PATH")


def repository_of(folder: Path) -> Path | None:
    """The nearest folder upwards, itself first, that is a git repository or a worktree of one."""
    return next((at for at in (folder, *folder.parents) if _is_repository(at)), None)


def find_project(start: Path | None = None) -> Path:
    """The project's root: the nearest folder upwards with a `.kb` or `.git`, else `start`."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        if os.path.isdir(folder / ".kb") or _is_repository(folder):
            return folder
    return start


def database_paths(options: Sequence[str] | None = None) -> list[Path]:
    """The files that are read as one: the options, KB_DB, SEARCH_DB_PATH, else the project's own.

    KB_DB may hold several, as PATH does.
    """
    if options:
        return _distinct(options)
    for variable in DATABASE_VARIABLES:
        if paths := paths_named_by(variable):
            return paths
    return [find_project() / FILE_NAME]


def paths_named_by(variable: str) -> list[Path]:
    """The knowledge base files that one of `DATABASE_VARIABLES` names; [] where it is not set."""
    value = os.environ.get(variable, "")
    is_list = variable == LIST_VARIABLE and not os.path.exists(value)
    parts = value.split(os.pathsep) if is_list else [value]
    return _distinct(filter(None, parts))


def _distinct(names: Iterable[str]) -> list[Path]:
    """The files in their order; one that is named twice, in whatever way, is there once.

    A folder stands for the `*.db` in it.
    """
    files: dict[str, Path] = {}
    for path in (Path(name).expanduser() for name in names):
        for file in (sorted(path.glob("*.db")) if path.is_dir() else ()) or (path,):
            files.setdefault(os.path.realpath(file), file)
    return [*files.values()]


def user_cache() -> Path:
    """The folder for what kb keeps for a user and can make again."""
    if folder := _base_directory("XDG_CACHE_HOME", ".cache"):
        return folder
    from platformdirs import user_cache_path

    return user_cache_path("kb", appauthor=False)


def user_configuration() -> Path:
    """The folder for what a user decides for all projects."""
    if folder := _base_directory("XDG_CONFIG_HOME", ".config"):
        return folder
    from platformdirs import user_config_path

    return user_config_path("kb")


def user_state() -> Path:
    """The folder for what kb notes of a user's files and cannot make again."""
    if folder := _base_directory("XDG_STATE_HOME", ".local/state"):
        return folder
    from platformdirs import user_state_path

    return user_state_path("kb", appauthor=False)


def _base_directory(variable: str, usual: str) -> Path | None:
    """On Linux kb's folder by the XDG Base Directory Specification, where that is plain to see.

    platformdirs, which knows the rest, takes 6 ms of every start to load.
    """
    folder, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    if sys.platform != "linux" or not os.path.isabs(home):
        return None
    return Path(folder, "kb") if os.path.isabs(folder) else Path(home, usual, "kb")


def _is_repository(folder: Path) -> bool:
    # A folder, or in a worktree or a submodule a file. Not `Path.exists`, which raises where a
    # folder above may not be entered.
    return os.path.exists(folder / ".git")
