"""Find a section by what somebody calls it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from kb.errors import SectionNotFound
from kb.store.database import Row
from kb.text.nearest import nearest
from kb.text.terms import words

PATH_SEPARATOR = ">"


def find_section(sections: Sequence[Row], wanted: str, document: str) -> tuple[Row, list[Row]]:
    """The section that `wanted` names, and others that it names equally well.

    In this order: the exact heading, the heading without regard to case and punctuation, a path
    of headings (`Install > Linux`; from any ancestor on), a part of a heading, a path of parts.

    Raises:
        SectionNotFound: with the nearest headings.
    """
    key = _key(wanted)
    path = [_key(part) for part in wanted.split(PATH_SEPARATOR)]
    paths = _heading_paths(sections)
    tiers = (
        [row for row in sections if row["heading"] == wanted],
        [row for row in sections if key and _key(row["heading"]) == key],
        [
            row
            for row, ancestors in zip(sections, paths, strict=True)
            if len(path) > 1 and ancestors[-1] == path[-1] and _is_subsequence(path, ancestors)
        ],
        [row for row in sections if key and key in _key(row["heading"])],
        [
            row
            for row, ancestors in zip(sections, paths, strict=True)
            if len(path) > 1 and path[-1] in ancestors[-1] and _are_parts(path, ancestors)
        ],
    )
    for tier in tiers:
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
