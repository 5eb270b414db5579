"""Where things are: the knowledge base file, the project, the user's settings."""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = Path(".kb") / "kb.db"
DATABASE_VARIABLES = ("KB_DB", "SEARCH_DB_PATH")


def find_project(start: Path | None = None) -> Path:
    """The project's root: the nearest folder upwards with a `.kb` or `.git`, else `start`."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        if os.path.isdir(folder / ".kb") or os.path.exists(folder / ".git"):
            return folder
    return start


def database_path(option: str | None = None) -> Path:
    """The knowledge base file: the option, KB_DB, SEARCH_DB_PATH, else the project's own."""
    if option:
        return Path(option).expanduser()
    for variable in DATABASE_VARIABLES:
        if value := os.environ.get(variable):
            return Path(value).expanduser()
    return find_project() / FILE_NAME
