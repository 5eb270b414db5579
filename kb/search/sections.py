"""Find a section by what somebody calls it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from kb.errors import SectionNotFound
from kb.formats.anchors import block_line, made_anchors, written_anchors
from kb.store.connection import Row
from kb.text.headings import TYPED_SEPARATOR
from kb.text.nearest import nearest
from kb.text.terms import words


def find_section(
    sections: Sequence[Row], wanted: str, document: str, content: str = ""
) -> tuple[Row, list[Row]]:
    """The section that `wanted` names, and others that it names equally well.

    In this order: the exact heading, also as it is written with its markup; the heading without
    regard to case and punctuation; a path of headings (`Install > Linux`; from any ancestor on); an
    anchor, with or without `#`; a part of a heading; a path of parts.

    Args:
        content: the document's text, in which anchors are written.

    Raises:
        SectionNotFound: with the nearest headings.
    """
    for tier in _tiers(sections, wanted, content):
        if tier:
            return tier[0], tier[1:]
    headings = [row["heading"] for row in sections]
    near = nearest(wanted, headings)
    raise SectionNotFound(
        f'Section "{wanted}" not found in document "{document}".',
        document=document,
        section=wanted,
        suggestions=near or headings[:10],
    )


def _tiers(sections: Sequence[Row], wanted: str, content: str) -> Iterator[list[Row]]:
    """The sections that fit, the best way of fitting first; each is only looked for if needed."""
    from kb.formats.markdown import plain_heading  # here: it brings YAML

    plain = plain_heading(wanted)
    keys = [key for key in dict.fromkeys((_key(wanted), _key(plain))) if key]
    yield [row for row in sections if row["heading"] == wanted]
    yield [row for row in sections if row["heading"] == plain]
    for key in keys:
        yield [row for row in sections if _key(row["heading"]) == key]
    paths = _heading_paths(sections)
    # Obsidian writes a path of headings with `#`.
    for separator in (TYPED_SEPARATOR, "#"):
        path = [_key(part) for part in wanted.split(separator)]
        yield [
            row
            for row, ancestors in zip(sections, paths, strict=True)
            if len(path) > 1 and ancestors[-1] == path[-1] and _is_subsequence(path, ancestors)
        ]
    yield from _by_anchor(sections, wanted, content.split("\n"))
    for key in keys:
        yield [row for row in sections if key in _key(row["heading"])]
    path = [_key(part) for part in wanted.split(TYPED_SEPARATOR)]
    yield [
        row
        for row, ancestors in zip(sections, paths, strict=True)
        if len(path) > 1 and path[-1] in ancestors[-1] and _are_parts(path, ancestors)
    ]


def _by_anchor(sections: Sequence[Row], wanted: str, lines: Sequence[str]) -> Iterator[list[Row]]:
    """Those that an anchor names: one that is written there, else one that renderers make."""
    name = unquote(wanted.rpartition("#")[2].strip()).casefold()
    if not name:
        return
    if name.startswith("^") and (line := block_line(lines, name[1:])):
        around = [row for row in sections if row["start_line"] <= line <= row["end_line"]]
        yield around[-1:]
    inside = [row for row in sections if row["start_line"] <= len(lines)]
    yield [
        row
        for row in inside
        if name in map(str.casefold, written_anchors(lines, row["start_line"]))
    ]
    made = made_anchors([row["heading"] for row in sections])
    yield [
        row
        for row, anchors in zip(sections, made, strict=True)
        if name in map(str.casefold, anchors)
    ]


def _heading_paths(sections: Sequence[Row]) -> list[list[str]]:
    """Each section's headings from the top, as comparison keys."""
    open_sections: list[tuple[int, str]] = []
    paths: list[list[str]] = []
    for row in sections:
        while open_sections and open_sections[-1][0] >= row["level"]:
            open_sections.pop()
        open_sections.append((row["level"], _key(row["heading"])))
        paths.append([key for _, key in open_sections])
    return paths


def _is_subsequence(wanted: Sequence[str], there: Sequence[str]) -> bool:
    rest = iter(there)
    return all(key in rest for key in wanted)


def _are_parts(wanted: Sequence[str], there: Sequence[str]) -> bool:
    rest = iter(there)
    return all(key and any(key in heading for heading in rest) for key in wanted)


def _key(heading: str) -> str:
    return " ".join(words(unicodedata.normalize("NFKC", heading).casefold()))
