"""The names under which headings are linked: written ones, and those that renderers make.

GitHub and Docusaurus make `fonts`, `fonts-1`, ... of equal headings, MkDocs `fonts`, `fonts_1`;
Sphinx and docutils turn everything but ASCII letters and digits into hyphens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

__all__ = ["block_line", "made_anchors", "slug", "written_anchors"]

_DROPPED = re.compile(r"[^\w\- ]")
_WRITTEN = re.compile(
    r"""
      \{\#(?P<attribute>[^\s{}]+)                                  # Markdown: {#id}
    | <a\s[^<>]*\b(?:id|name)\s*=\s*["'](?P<html>[^"']+)["']
    | ^\s*\.\.\s+_`?(?P<label>[^`:]+)`?:\s*$                       # reStructuredText
    | ^\s*\[\[(?P<asciidoc>[\w:.-]+)(?:,[^\]]*)?\]\]               # AsciiDoc
    | ^\s*\[\#(?P<short>[\w:.-]+)[^\]]*\]\s*$
    | ^\s*:(?:CUSTOM_)?ID:\s*(?P<org>\S+)                          # Org
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LINES_ABOVE = 4
_LINES_BELOW = 6  # of a drawer of Org


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading's text."""
    return _DROPPED.sub("", heading.strip().lower()).replace(" ", "-")


def made_anchors(headings: Sequence[str]) -> list[set[str]]:
    """For each heading of a document the anchors that the common renderers give it."""
    schemes: tuple[tuple[Callable[[str], str], str], ...] = (
        (slug, "-"),
        (_ascii_slug, "_"),
        (_docutils_id, "-"),
    )
    found: list[set[str]] = [set() for _ in headings]
    for make, separator in schemes:
        taken: set[str] = set()
        counts: dict[str, int] = {}
        for anchors, heading in zip(found, headings, strict=True):
            plain = anchor = make(heading)
            while anchor in taken or not anchor:
                counts[plain] = counts.get(plain, 0) + 1
                anchor = f"{plain}{separator}{counts[plain]}"
            taken.add(anchor)
            anchors.add(anchor)
    return found


def written_anchors(lines: Sequence[str], start_line: int) -> Iterator[str]:
    """The anchors that somebody wrote for the heading in this line, in any markup.

    They stand in the heading, in the lines above it up to other text, or in a drawer below it.
    """
    row = start_line - 1
    yield from _in_line(lines[row])
    for line in reversed(lines[max(0, row - _LINES_ABOVE) : row]):
        above = list(_in_line(line))
        if line.strip() and not above:
            break
        yield from above
    if row + 1 < len(lines) and lines[row + 1].strip().upper() == ":PROPERTIES:":
        for line in lines[row + 2 : row + 2 + _LINES_BELOW]:
            if line.strip().upper() == ":END:":
                break
            yield from _in_line(line)


def block_line(lines: Sequence[str], name: str) -> int:
    """The line (from 1) that ends with `^name`, the mark of a block in Obsidian; 0 for none."""
    mark = re.compile(rf"(?:^|\s)\^{re.escape(name)}\s*\Z")
    return next((number for number, line in enumerate(lines, 1) if mark.search(line)), 0)


def _in_line(line: str) -> Iterator[str]:
    for found in _WRITTEN.finditer(line):
        yield next(filter(None, found.groups()), "").strip()


def _ascii_slug(heading: str) -> str:
    """As Python-Markdown makes it, and with it MkDocs."""
    text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode("ascii")
    text = re.sub(r"[^\w\s-]", "", text).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def _docutils_id(heading: str) -> str:
    text = unicodedata.normalize("NFKD", heading.lower()).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
