"""The tags and aliases that a document's front matter gives it, and the tags in its text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

_SEPARATOR = re.compile(r"[,;\n]")
_BLANKS = re.compile(r"\s+")
_HTML = re.compile(r"<[^<>]*>")
_BACKTICKS = re.compile(r"`+")
# As Obsidian has it: letters of any script, digits, `_ - /` and pictures, behind a blank or at the
# beginning of a line; as Logseq has it, words in brackets too.
_INLINE_TAG = re.compile(
    r"(?<!\S)#(?:\[\[(?P<words>[^\[\]\n]{1,200})\]\]"
    r"|(?P<name>[^\s!-,.:-@\[-^`{-~\u2000-\u200c\u200e-\u206f\u3000-\u303f\uff01-\uff0f]{1,200}))"
)


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """A document's tags as they are written, each once: `tags`, `tag`; without `#`."""
    names = (name.lstrip("#").strip() for name in _values(metadata, "tags", "tag"))
    return list(dict.fromkeys(filter(None, names)))


def inline_tags(text: str) -> list[str]:
    """The tags in one paragraph, heading or the like of Markdown, as they are written.

    What stands in code or within an HTML tag is none, nor is a number: `#12` is an issue.
    """
    if "#" not in text:
        return []
    plain = _HTML.sub(" ", _without_code(text))
    names = (match["words"] or match["name"] for match in _INLINE_TAG.finditer(plain))
    return [name for name in names if any(not (c.isdecimal() or c in "/_-") for c in name)]


def names_of(metadata: Mapping[str, Any]) -> str:
    """A document's names besides its title, a line each: `aliases`, `alias` and its tags."""
    aliases = (name.strip(" []") for name in _values(metadata, "aliases", "alias"))
    return "\n".join([*dict.fromkeys(filter(None, aliases)), *tags_of(metadata)])


def normal_tag(tag: str) -> str:
    """A tag for comparison, without regard to case, blanks and a sign in front."""
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
            yield from (str(item) for item in value if isinstance(item, str | int | float))


def _without_code(text: str) -> str:
    """The text without code spans, each between equal runs of backticks."""
    runs = [match.span() for match in _BACKTICKS.finditer(text)]
    places: dict[int, list[int]] = {}  # by length: which runs, the last first
    for number, (start, end) in reversed(list(enumerate(runs))):
        places.setdefault(end - start, []).append(number)
    parts: list[str] = []
    end_of_code = number = 0
    while number < len(runs):
        start, end = runs[number]
        same = places[end - start]
        while same and same[-1] <= number:
            same.pop()
        if same:
            parts.append(text[end_of_code:start])
            number = same[-1]
            end_of_code = runs[number][1]
        number += 1
    return " ".join([*parts, text[end_of_code:]])
