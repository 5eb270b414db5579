"""Where things are: the knowledge base file, the project, the user's settings, aliases."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kb.errors import ConfigurationError

FILE_NAME = Path(".kb") / "kb.db"
DATABASE_VARIABLES = ("KB_DB", "SEARCH_DB_PATH")
ALIAS_FILES = ("kb.json", "context.json")


def find_project(start: Path | None = None) -> Path:
    """The project's root: the nearest folder upwards with a `.kb` or `.git`, else `start`."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        if (folder / ".kb").is_dir() or (folder / ".git").exists():
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


def load_aliases(project: Path) -> dict[str, str]:
    """Alias -> collection id. The project's `kb.json` or `context.json` wins over the user's.

    The file holds `{"collections": {"alias": "collection id"}}`; an object with an `id` in
    place of the text is accepted too.

    Raises:
        ConfigurationError: a file is there but cannot be read as that.
    """
    aliases: dict[str, str] = {}
    for file in reversed(list(_alias_files(project))):
        aliases.update(_read_aliases(file))
    return aliases


def _alias_files(project: Path) -> Iterator[Path]:
    from platformdirs import user_config_path

    for folder in (project, project / ".kb", user_config_path("kb")):
        for name in ALIAS_FILES:
            if (folder / name).is_file():
                yield folder / name
                break


def _read_aliases(file: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}", path=str(file)) from error
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}", path=str(file)) from error
    entries = content.get("collections", {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(
            f'{file} must hold {{"collections": {{"alias": "collection id"}}}}', path=str(file)
        )
    aliases: dict[str, str] = {}
    for alias, entry in entries.items():
        target = entry.get("id") if isinstance(entry, dict) else entry
        if not isinstance(target, str):
            raise ConfigurationError(
                f'{file}: the alias "{alias}" must name a collection id', path=str(file)
            )
        aliases[alias] = target
    return aliases
