"""What a document's front matter says of it, its date (or its path does), tags and aliases; and the
tags in its text."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

from kb.text.times import stored_time

RESEARCH, URL_CONTENT = "research", "url-content"  # what an archive holds

_ISO_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{2})[-/.](\d{2})(?!\d)")
_WRITTEN_DATES = ("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%m/%d/%Y")
# As mail has them: Mon, 30 Nov 2026 12:00:00 +0000.
_MAIL_DATE = re.compile(r"(?<=, )\d{1,2} [A-Z][a-z]{2} \d{4}(?= \d\d:)")
# In front matter, in lower case and without signs; that of the last change first.
_KEYS = (
    *("updated", "updatedat", "lastupdated", "lastmodified", "lastmodifiedat", "lastmod"),
    *("modified", "date", "published", "created", "createdat", "creationdate"),
)


def document_date(metadata: Mapping[str, Any], path: str) -> str:
    """The date that a document's metadata or its path says, as YYYY-MM-DD; "" if none."""
    values = {re.sub(r"\W|_", "", key).lower(): value for key, value in metadata.items()}
    archive = metadata.get("archive")
    dates = [*map(values.get, _KEYS), archive.get("date") if isinstance(archive, dict) else None]
    return next(filter(None, map(read_date, dates)), "") or first_iso_date(path.replace("_", "-"))


def file_date(modified_ns: int) -> str:
    """A file's time as it is stored; "" if no calendar has it."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return stored_time(datetime.fromtimestamp(modified_ns // 10**9, UTC))
    return ""


def read_date(value: Any) -> str:
    """A date as YYYY-MM-DD from text or from seconds or milliseconds since 1970; "" if none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if value > 1e11 else value
        if not 1e8 < seconds < 1e10:
            return ""
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    if not isinstance(value, str):
        return ""
    if day := first_iso_date(value):
        return day
    if match := _MAIL_DATE.search(value):
        value = match[0]
    for form in _WRITTEN_DATES:
        with contextlib.suppress(ValueError):
            return datetime.strptime(value.strip().rstrip("."), form).date().isoformat()
    return ""


def first_iso_date(text: str) -> str:
    """The first valid date in a text, as YYYY-MM-DD; "" if none."""
    for match in _ISO_DATE.finditer(text):
        with contextlib.suppress(ValueError):
            return date(*map(int, match.groups())).isoformat()
    return ""


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
