"""Tables of a PDF whose rows and columns are ruled: the rules define the cells."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from kb.formats.convert.pdf_lines import with_accents

MOST_RULES = 5_000  # of a page, as drawn: a page with more is a map
MOST_JOINED = 120  # of a page, once collinear ones are joined: more take half a second
MOST_LINES = 3  # of such a cell
MOST_HIGH = 3  # times the lowest row, of a cell that takes half its table's height
_THIN = 2.5  # points
_NEAR = 3.0  # points between rules that meet, or are one
_SOFT_BREAK = re.compile("([\x02\ufffe\u00ad])\\s+")


class Grid(NamedTuple):
    """A ruled table; positions in points from the lower left of the page."""

    left: float
    bottom: float
    right: float
    top: float
    rows: list[list[str]]  # a cell that spans others is the first; the others are ""


class _Rule(NamedTuple):
    at: float  # across its direction
    start: float
    end: float

    def covers(self, place: float) -> bool:
        return self.start - _NEAR <= place <= self.end + _NEAR


def grids(page: pypdfium2.PdfPage) -> Iterator[Grid]:
    """Ruled tables of at least two rows and columns; none of a rotated page."""
    across, down = _rules(page) if page.get_rotation() == 0 else ([], [])
    if not (across and down) or len(across) + len(down) > MOST_JOINED:
        return
    text_page = page.get_textpage()
    try:
        while down:
            here, beside = [down.pop()], list[_Rule]()
            for ruled in here:  # grows with the rules that meet these
                touching = [other for other in across if _meet(other, ruled)]
                across = [other for other in across if other not in touching]
                beside += touching
                near = [other for other in down if any(_meet(rule, other) for rule in touching)]
                down = [other for other in down if other not in near]
                here += near
            ends = [end for rule in beside for end in rule[1:]]
            columns = _places([*(rule.at for rule in here), *ends])
            heights = _places(
                [*(rule.at for rule in beside), *(end for rule in here for end in rule[1:])]
            )[::-1]
            if len(columns) > 2 and len(heights) > 2:
                rows = _cells(text_page, columns, heights, beside, here)
                yield Grid(columns[0], heights[-1], columns[-1], heights[0], rows)
    finally:
        text_page.close()


def _meet(across: _Rule, down: _Rule) -> bool:
    return across.covers(down.at) and down.covers(across.at)


def _rules(page: pypdfium2.PdfPage) -> tuple[list[_Rule], list[_Rule]]:
    """A page's horizontal and vertical rules."""
    across, down = [], []
    paths = page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_PATH], max_depth=1)
    for path in itertools.islice(paths, MOST_RULES):
        left, bottom, right, top = path.get_bounds()
        if top - bottom < _THIN < right - left:
            across.append(_Rule((top + bottom) / 2, left, right))
        elif right - left < _THIN < top - bottom:
            down.append(_Rule((left + right) / 2, bottom, top))
    return _joined(across), _joined(down)


def _joined(rules: Sequence[_Rule]) -> list[_Rule]:
    """The rules, with collinear ones that meet joined."""
    joined: list[_Rule] = []
    for at, start, end in sorted((round(at), start, end) for at, start, end in rules):
        last = joined[-1] if joined else None
        if last and last.at == at and last.covers(start):
            joined[-1] = _Rule(at, last.start, max(end, last.end))
        else:
            joined.append(_Rule(at, start, end))
    return joined


def _places(values: Sequence[float]) -> list[float]:
    """The values in order, near ones merged."""
    places: list[float] = []
    for value in sorted(values):
        if not places or value > places[-1] + _NEAR:
            places.append(value)
    return places


def _cells(
    text_page: pypdfium2.PdfTextPage,
    columns: Sequence[float],
    heights: Sequence[float],
    across: Sequence[_Rule],
    down: Sequence[_Rule],
) -> list[list[str]]:
    """The texts between the rules; where a rule is missing, a cell continues."""
    rows = [[""] * (len(columns) - 1) for _ in heights[1:]]
    taken: set[tuple[int, int]] = set()
    lowest = min(high - low for high, low in itertools.pairwise(heights))
    tall: Counter[int] = Counter()
    for row, column in itertools.product(range(len(rows)), range(len(rows[0]))):
        if (row, column) in taken:
            continue
        middle = (heights[row] + heights[row + 1]) / 2
        right = column + 1
        while right < len(columns) - 1 and not _is_ruled(down, columns[right], middle):
            right += 1
        middle = (columns[column] + columns[right]) / 2
        low = row + 1
        while low < len(heights) - 1 and not _is_ruled(across, heights[low], middle):
            low += 1
        taken.update(itertools.product(range(row, low), range(column, right)))
        text = text_page.get_text_bounded(
            columns[column], heights[low], columns[right], heights[row]
        )
        rows[row][column] = with_accents(" ".join(_SOFT_BREAK.sub(r"\1", text).split()))
        height = heights[row] - heights[low]  # a tall cell contains rows without rules
        if text.strip() and height > max(MOST_HIGH * lowest, (heights[0] - heights[-1]) / 2):
            tall[row] += 1 + text.count("\n") // MOST_LINES
    if max(tall.values(), default=0) > 1:
        return []
    kept = [place for place, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
    return [[row[place] for place in kept] for row in rows if any(row)]


def _is_ruled(rules: Sequence[_Rule], at: float, place: float) -> bool:
    return any(abs(rule.at - at) <= _NEAR and rule.covers(place) for rule in rules)
