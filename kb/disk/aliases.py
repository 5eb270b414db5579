"""Aliases of collections, from files that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kb.disk.read import is_there, read_bytes, reason
from kb.settings import user_configuration
from kb.text.decode import encodable

__all__ = ["ALIAS_FILES", "load_aliases"]

ALIAS_FILES = ("kb.json", "context.json")
MAXIMUM_BYTES = 1_000_000


def load_aliases(project: Path, warn: Callable[[str], None]) -> dict[str, str]:
    """Alias -> collection id. The project's `kb.json` or `context.json` wins over the user's.

    The file holds `{"collections": {"alias": "collection id"}}`; an object with an `id` in
    place of the text is accepted too.

    Args:
        warn: called with what is wrong with a file, which then gives no alias. Any project that
            somebody cloned can bring such a file along, and other programs have a `context.json`
            too: it must stop nothing.
    """
    aliases: dict[str, str] = {}
    for file in reversed(list(_alias_files(project))):
        try:
            aliases.update(_read_aliases(file, warn))
        except OSError as error:
            warn(f"cannot read {file}: {reason(error)}; its aliases are left out")
        except (ValueError, RuntimeError) as error:  # deep nesting, a loop of links
            where = str(error) if isinstance(error, json.JSONDecodeError) else "not UTF-8 JSON"
            warn(f"{file} is not JSON ({where}); its aliases are left out")
    return aliases


def _alias_files(project: Path) -> Iterator[Path]:
    for folder in (project, project / ".kb", user_configuration()):
        for name in ALIAS_FILES:
            if is_there(folder / name):
                yield folder / name
                break


def _read_aliases(file: Path, warn: Callable[[str], None]) -> dict[str, str]:
    content: Any = json.loads(read_bytes(file.resolve(), MAXIMUM_BYTES).decode("utf-8-sig"))
    entries = content.get("collections", {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        warn(
            f'{file} must hold {{"collections": {{"alias": "collection id"}}}}; its aliases are '
            "left out"
        )
        return {}
    aliases: dict[str, str] = {}
    for alias, entry in entries.items():
        target = entry.get("id") if isinstance(entry, dict) else entry
        if not isinstance(target, str) or not _is_utf_8(alias + target):
            warn(
                f'{file}: the alias "{encodable(alias)}" must name a collection id; it is left out'
            )
        else:
            aliases[alias] = target
    return aliases


def _is_utf_8(text: str) -> bool:
    """Whether a text can be written: JSON can hold half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
