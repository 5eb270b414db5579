"""Archives that a project's configuration names: `"archives": {"research": PATH, ...}`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb.errors import ConfigurationError
from kb.formats.archive_kinds import RESEARCH, URL_CONTENT
from kb.project.config import find_config, folder_inside, read_json

__all__ = ["configured_archives"]

SOURCES = {"research": RESEARCH, "url_content": URL_CONTENT}  # by key


def configured_archives(
    start: Path, allowed: Sequence[Path]
) -> tuple[dict[str, tuple[Path, str]], list[str]]:
    """The folders of archives, and what is wrong with those that cannot be used.

    Args:
        start: where the configuration is looked for, upwards; without one there are no archives.
        allowed: folders outside the project that the user lets documents lie in.

    Returns:
        by key as people know it, the folder and what it holds; problems in words.
    """
    try:
        file = find_config(start)
    except ConfigurationError:
        return {}, []
    name = f"{file.parent.name}/{file.name}"
    try:
        content = read_json(file, name)
    except ConfigurationError as error:
        return {}, [error.message]
    named: Any = content.get("archives") if isinstance(content, dict) else None
    if named is None:
        return {}, []
    if not isinstance(named, dict):
        return {}, [f"{name}: archives must be a JSON object"]
    root = file.parent.parent.resolve()
    found: dict[str, tuple[Path, str]] = {}
    problems: list[str] = []
    for key, path in named.items():
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
            found[where] = (folder, SOURCES[key])
    return found, problems
