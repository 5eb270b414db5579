"""What Logseq writes into Markdown: properties of a page in its first lines, ids of blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

__all__ = ["block_ids", "page_properties"]

FOLDERS = frozenset({"pages", "journals"})
_PROPERTY = re.compile(r"(?P<name>title|alias|tags)::[ \t]+(?P<value>.*\S)", re.IGNORECASE)
_ANY_PROPERTY = re.compile(r"[\w-]+::(?:[ \t]|\Z)")
_BLOCK_ID = re.compile(r"^\s*id:: ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.MULTILINE)


def page_properties(lines: Sequence[str], path: str) -> dict[str, str]:
    """Title, alias and tags of a page in a graph's own folders; elsewhere such lines are text."""
    found: dict[str, str] = {}
    if PurePosixPath(path).parent.name not in FOLDERS:
        return found
    for line in lines:
        if not _ANY_PROPERTY.match(line):
            break
        if known := _PROPERTY.match(line):
            found[known["name"].lower()] = known["value"].strip()
    return found


def block_ids(text: str) -> tuple[str, ...]:
    """The ids by which blocks of a page are referred to."""
    return tuple(_BLOCK_ID.findall(text)) if "id:: " in text else ()
