"""Aliases of collections, from files that anybody may have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kb.disk.read import is_there, read_bytes, reason
from kb.settings import user_configuration
from kb.text.counted import some_of
from kb.text.decode import encodable
from kb.text.json_text import JsonError, parse_json

ALIAS_FILES = ("kb.json", "context.json")
_KEYS = ("collections", "$schema")
_FORM = '{"collections": {"alias": "collection id"}}'
MAXIMUM_BYTES = 1_000_000
MOST_SHOWN = 60  # characters of a key in a message


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
    for folder in (user_configuration(), project / ".kb", project):
        file = next((p for name in ALIAS_FILES if is_there(p := folder / name)), None)
        if file is None:
            continue
        try:
            aliases.update(_read_aliases(file, warn))
        except OSError as error:
            warn(f"cannot read {file}: {reason(error)}; its aliases are left out")
        except (JsonError, RuntimeError) as error:  # a loop of links
            warn(f"{file} is not JSON that can be read ({error}); its aliases are left out")
    return aliases


def _read_aliases(file: Path, warn: Callable[[str], None]) -> dict[str, str]:
    content: Any = parse_json(read_bytes(file.resolve(), MAXIMUM_BYTES))
    entries = content.get("collections", {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        warn(f"{file} must hold {_FORM}; its aliases are left out")
        return {}
    # A context.json is mostly another program's: there only what looks misspelt is told.
    foreign = [key[:MOST_SHOWN] for key in content if key not in _KEYS]
    if file.name != ALIAS_FILES[0]:
        foreign = [key for key in foreign if key.casefold().startswith("col")]
    if foreign:
        warn(f"{file}: not used: {encodable(some_of(foreign))}; it must hold {_FORM}")
    aliases: dict[str, str] = {}
    for alias, entry in entries.items():
        target = entry.get("id") if isinstance(entry, dict) else entry
        # JSON can hold half of a surrogate pair, which nothing can write.
        if not isinstance(target, str) or encodable(alias + target) != alias + target:
            warn(
                f'{file}: the alias "{encodable(alias)}" must name a collection id; it is left out'
            )
        else:
            aliases[alias] = target
    return aliases
