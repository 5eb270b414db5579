"""Finds a section by what somebody calls it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from kb.errors import SectionNotFound
from kb.formats.sites import block_line, made_anchors, written_anchors
from kb.store.connection import Row
from kb.text.headings import TYPED_SEPARATOR
from kb.text.nearest import nearest
from kb.text.terms import words

_NAME_END = re.compile(r"\s+[<\[({]|[=<\[({]")


def find_section(
    sections: Sequence[Row], name: str, document: str, content: str = ""
) -> tuple[Row, list[Row]]:
    """The section of a name, and others that it names equally well, in this order: the exact
    heading, also with its markup; the heading ignoring case and punctuation; a path of headings
    (`Install > Linux`, from any ancestor on); an anchor written in `content` or made by renderers,
    with or without `#`; a name of a term; a part of a heading; a path of parts. Raises
    SectionNotFound with the nearest headings."""
    if tier := next(filter(None, _tiers(sections, name, content)), None):
        return tier[0], tier[1:]
    headings = [row["heading"] for row in sections]
    raise SectionNotFound(
        f'Section "{name}" not found in document "{document}".',
        document=document,
        section=name,
        suggestions=nearest(name, headings) or headings[:10],
    )


def _tiers(sections: Sequence[Row], name: str, content: str) -> Iterator[list[Row]]:
    """The sections that fit a name, the best kind of fit first."""
    from kb.formats.markdown import plain_heading  # here: it imports YAML

    plain = plain_heading(name)
    keys = [key for key in dict.fromkeys((_key(name), _key(plain))) if key]
    yield [row for row in sections if row["heading"] == name]
    yield [row for row in sections if row["heading"] == plain]
    for key in keys:
        yield [row for row in sections if _key(row["heading"]) == key]
    paths = _heading_paths(sections)
    # Obsidian writes a path of headings with `#`.
    for separator in (TYPED_SEPARATOR, "#"):
        path = [_key(part) for part in name.split(separator)]
        yield [
            row
            for row, ancestors in zip(sections, paths, strict=True)
            if len(path) > 1 and ancestors[-1] == path[-1] and _is_subsequence(path, ancestors)
        ]
    yield from _by_anchor(sections, name, content.split("\n"))
    yield [row for row in sections if name.strip() in _names(row["heading"])]
    for key in keys:
        yield [row for row in sections if key in _key(row["heading"])]
    path = [_key(part) for part in name.split(TYPED_SEPARATOR)]
    yield [
        row
        for row, ancestors in zip(sections, paths, strict=True)
        if len(path) > 1 and path[-1] in ancestors[-1] and _are_parts(path, ancestors)
    ]


def _by_anchor(sections: Sequence[Row], name: str, lines: Sequence[str]) -> Iterator[list[Row]]:
    """The sections of an anchor written in the text, else of one that renderers make."""
    anchor = unquote(name.rpartition("#")[2].strip()).casefold()
    if not anchor:
        return
    if anchor.startswith("^") and (line := block_line(lines, anchor[1:])):
        yield [row for row in sections if row["start_line"] <= line <= row["end_line"]][-1:]
    inside = [row for row in sections if row["start_line"] <= len(lines)]
    yield [
        row
        for row in inside
        if anchor in map(str.casefold, written_anchors(lines, row["start_line"]))
    ]
    headings = _without_terms(sections)
    made = made_anchors([row["heading"] for row in headings])
    yield [
        row
        for row, anchors in zip(headings, made, strict=True)
        if anchor in map(str.casefold, anchors)
    ]


def _without_terms(sections: Sequence[Row]) -> list[Row]:
    """The headings that renderers count: a term lies in the body of a heading."""
    headings: list[Row] = []
    for row in sections:
        if not headings or headings[-1]["body_end_line"] < row["start_line"]:
            headings.append(row)
    return headings


def _names(heading: str) -> Iterator[str]:
    """A term's short names: `-m <text>, --message=<text>` is `-m` and `--message`, `run(task, *,
    debug=None)` is `run`."""
    for part in heading.split(", "):
        yield part
        yield _NAME_END.split(part, maxsplit=1)[0]


def _heading_paths(sections: Sequence[Row]) -> list[list[str]]:
    """Each section's headings from the top, as comparison keys."""
    open_sections: list[tuple[int, str]] = []
    paths: list[list[str]] = []
    for row in sections:
        while open_sections and open_sections[-1][0] < row["start_line"]:
            open_sections.pop()
        open_sections.append((row["end_line"], _key(row["heading"])))
        paths.append([key for _, key in open_sections])
    return paths


def _is_subsequence(path: Sequence[str], ancestors: Sequence[str]) -> bool:
    rest = iter(ancestors)
    return all(key in rest for key in path)


def _are_parts(path: Sequence[str], ancestors: Sequence[str]) -> bool:
    rest = iter(ancestors)
    return all(key and any(key in heading for heading in rest) for key in path)


def _key(heading: str) -> str:
    return " ".join(words(unicodedata.normalize("NFKC", heading).casefold()))
