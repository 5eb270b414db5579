"""The lines of a PDF's pages, and which of them are only there to turn pages by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Line", "without_furniture"]

_NUMBERS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"\W*(?:page\s+)?(?:\d{1,4}|[ivxlc]{1,6})(?:\s*(?:/|of)\s*\d+)?\W*", re.I)
# Lines at either end of a page that may be a running head or foot.
_EDGE = 2
_LEAST_PAGES = 3  # on which a line stands at the same place


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it stands on its page; positions in points from the lower left."""

    text: str
    page: int
    size: float  # of the type, in points
    is_bold: bool
    is_mono: bool
    left: int
    top: int


def without_furniture(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """The pages without running heads and feet: what stands at one place of several pages."""
    counts: Counter[tuple[str, int]] = Counter()
    for page in pages:
        counts.update({_key(line) for line in _edges(page)})
    kept = []
    for page in pages:
        edges = {id(line) for line in _edges(page)}
        kept.append(
            [
                line
                for line in page
                if id(line) not in edges
                or not (
                    (counts[_key(line)] >= _LEAST_PAGES and len(pages) > _LEAST_PAGES)
                    or (len(pages) > 1 and _PAGE_NUMBER.fullmatch(line.text))
                )
            ]
        )
    return kept


def _edges(page: Sequence[Line]) -> Iterator[Line]:
    placed = sorted(page, key=lambda line: -line.top)
    heights = sorted({line.top for line in placed}, reverse=True)
    outer = {*heights[:_EDGE], *heights[-_EDGE:]}
    for line in placed:
        if line.top in outer:
            yield line


def _key(line: Line) -> tuple[str, int]:
    return _NUMBERS.sub("#", line.text), round(line.top / 4)
