"""The tags and aliases that a document's front matter gives it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

_SEPARATOR = re.compile(r"[,;\n]")
_BLANKS = re.compile(r"\s+")


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """A document's tags as they are written, each once: `tags`, `tag`; without `#`."""
    found = (name.lstrip("#").strip() for name in _values(metadata, "tags", "tag"))
    return list(dict.fromkeys(filter(None, found)))


def aliases_of(metadata: Mapping[str, Any]) -> list[str]:
    """Other names of a document as they are written, each once: `aliases`, `alias`."""
    found = (name.strip(" []") for name in _values(metadata, "aliases", "alias"))
    return list(dict.fromkeys(filter(None, found)))


def names_of(metadata: Mapping[str, Any]) -> str:
    """What a document is found by besides its title and text, a name a line."""
    return "\n".join([*aliases_of(metadata), *tags_of(metadata)])


def normal_tag(tag: str) -> str:
    """A tag as it is compared: case, blanks and the sign in front mean nothing."""
    normal = unicodedata.normalize("NFKC", tag).casefold().lstrip("#").strip().strip("/")
    return _BLANKS.sub("-", normal)


def _values(metadata: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for key in keys:
        value = metadata.get(key)
        if isinstance(value, str):
            # Obsidian and Jekyll write several in one line, by commas or else by blanks.
            is_tags = key.startswith("tag") and not _SEPARATOR.search(value)
            yield from value.split() if is_tags else _SEPARATOR.split(value)
        elif isinstance(value, list):
            yield from (str(one) for one in value if isinstance(one, str | int | float))
