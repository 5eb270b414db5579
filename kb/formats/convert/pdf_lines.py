"""The lines of a PDF's pages without running heads, and their reading order."""

from __future__ import annotations

import ctypes
import itertools
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

_MONO = re.compile(r"mono|courier|consol|typewriter|menlo|cmtt|sftt|lmtt|fixed|code", re.IGNORECASE)
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx|medi\b", re.IGNORECASE)
BOLD_WEIGHT = 600
_NUMBERS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"\W*(?:page\s+)?(?:\d{1,4}|[ivxlc]{1,6})(?:\s*(?:/|of)\s*\d+)?\W*", re.I)
_EDGE = 2  # lines at either end of a page that may be a running head or foot
_MARGIN = 0.08  # of the text's height, at either end: may contain heads of several lines
_LEAST_PAGES = 3  # with a line in the same place

# TeX prints an accent as a character over its letter, which is dotless if it would collide.
_MARKS = (
    "\u0300\u0301\u0302\u0302\u0303\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0328"
)
_ACCENTS = dict(zip("`´ˆ^˜~¯˘˙¨˚˝ˇ¸˛" + _MARKS, _MARKS * 2, strict=True))
_BELOW = "\u0327\u0328"
_LOOSE = re.compile("([´ˆ¨˜ˇ˚˝¸`]) ?([^\\W\\d_])")
MOST_STRAYS = 500  # accents of a page whose letters are searched everywhere on it
_DOTTED = {"ı": "i", "ȷ": "j"}

_Box = tuple[float, float, float, float]  # left, bottom, right, top


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page; positions in points from the lower left."""

    text: str
    page: int
    size: float  # of the type, in points
    is_bold: bool
    is_mono: bool
    left: int
    top: int
    right: int
    table: tuple[tuple[str, ...], ...] = ()  # rows of cells, header first; then there is no text


def page_lines(document: pypdfium2.PdfDocument, index: int) -> list[Line]:
    """The lines of a page as they were written; none if it is damaged."""
    try:
        page = document[index]
        if document.formenv:  # what is filled in becomes text of the page
            pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
            page.close()
            page = document[index]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError:
        return []
    try:
        return list(_lines(text_page, index + 1))
    finally:
        text_page.close()
        page.close()


def _lines(text_page: pypdfium2.PdfTextPage, page: int) -> Iterator[Line]:
    count = text_page.count_chars()
    text = text_page.get_text_range(0, count) if count else ""
    if len(text) != count:  # characters without Unicode shift the positions
        text = "".join(
            chr(pdfium.FPDFText_GetUnicode(text_page, i) or 0xFFFD) for i in range(count)
        )
    font = _Font(text_page)
    signs = _joined(text, text_page)
    position = 0
    for part in text.split("\r\n"):
        end = position + len(part)
        visible = [i for i in range(position, end) if not signs[i].isspace() and signs[i]]
        if visible:
            first, last = visible[0], visible[-1]
            line = "".join(c for c in "".join(signs[first : last + 1]) if c >= " " or c in "\t\x02")
            yield font.line(line, first, last, page)
        position = end + 2


def _joined(text: str, text_page: pypdfium2.PdfTextPage) -> list[str]:
    """The characters of a page, each accent joined to its letter, nearly always a neighbour. A
    capital's accent is so high that pdfium starts a new line: then the page is searched."""
    signs = list(text)
    boxes: dict[int, _Box] = {}
    strays = 0
    for index, sign in enumerate(text):
        mark = _ACCENTS.get(sign)
        if mark is None:
            continue
        box = text_page.get_charbox(index)
        beside = [i for i in (index + 1, index - 1) if 0 <= i < len(text) and text[i].isalpha()]
        letter = _letter_at(box, {i: text_page.get_charbox(i) for i in beside}, signs, mark)
        if letter is None and not sign.isascii() and strays < MOST_STRAYS:
            strays += 1
            boxes = boxes or {i: text_page.get_charbox(i) for i in range(len(text))}
            letter = _letter_at(box, boxes, signs, mark)
        if letter is None:
            continue
        signs[letter] = _composed(signs[letter], mark)
        signs[index] = ""
        # Around an accent pdfium sees blanks; they stay only if words end there without it too.
        before = index - 1 - (text[index - 1 : index] == " ")
        after = index + 1 + (text[index + 1 : index + 2] == " ")
        if before >= 0 and after < len(text):
            end = text_page.get_charbox(before, loose=True)[2]
            is_word = abs(text_page.get_charbox(after, loose=True)[0] - end) < 1
            blanks = range(before + 1 if is_word else index + 1, after)
            if is_word or before < index - 1:
                for blank in blanks:
                    signs[blank] = ""
    return signs


def with_accents(text: str) -> str:
    """Text without positions, each accent joined to the letter after it."""
    return _LOOSE.sub(lambda pair: _composed(pair[2], _ACCENTS[pair[1]]), text)


def _letter_at(accent: _Box, boxes: dict[int, _Box], signs: Sequence[str], mark: str) -> int | None:
    """The nearest letter above or below an accent with which it makes one character."""
    middle = (accent[0] + accent[2]) / 2
    best: tuple[float, int] | None = None
    for index, (left, low, right, high) in boxes.items():
        if left < middle < right:
            distance = low - accent[3] if mark in _BELOW else accent[1] - high
            if (abs(distance) < (high - low) / 2) and len(_composed(signs[index], mark)) == 1:
                best = min(best or (distance, index), (distance, index))
    return best[1] if best else None


def _composed(letter: str, mark: str) -> str:
    return unicodedata.normalize("NFC", _DOTTED.get(letter, letter) + mark)


def is_bold(font: str) -> bool:
    """Whether a font is heavy by its name."""
    return bool(_BOLD.search(font))


def is_mono(font: str) -> bool:
    """Whether a font is monospaced by its name."""
    return bool(_MONO.search(font))


class _Font:
    def __init__(self, text_page: pypdfium2.PdfTextPage) -> None:
        self._page = text_page
        self._name = ctypes.create_string_buffer(256)
        self._flags = ctypes.c_int()

    def line(self, text: str, first: int, last: int, page: int) -> Line:
        """A line with the type of its first character; code is monospaced to its end."""
        box, end = pdfium.FS_RECTF(), pdfium.FS_RECTF()
        pdfium.FPDFText_GetLooseCharBox(self._page, first, box)
        pdfium.FPDFText_GetLooseCharBox(self._page, last, end)
        size = pdfium.FPDFText_GetFontSize(self._page, first)
        height = box.top - box.bottom
        if size < 3 or size > 3 * height > 0:  # the page scales the type, not the font
            size = height
        name = self._font(first)
        weight = pdfium.FPDFText_GetFontWeight(self._page, first)
        return Line(
            text=text,
            page=page,
            size=round(size * 2) / 2,
            is_bold=is_bold(name) or (weight >= BOLD_WEIGHT and not name),
            is_mono=is_mono(name) and is_mono(self._font(last)),
            left=round(box.left),
            top=round(box.top),
            right=round(end.right),
        )

    def _font(self, index: int) -> str:
        length = pdfium.FPDFText_GetFontInfo(self._page, index, self._name, 256, self._flags)
        return self._name.raw[: max(0, min(length, 256) - 1)].decode("latin-1")


def without_furniture(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """The pages without running heads and feet: what repeats in one place of several pages."""
    tops = [line.top for page in pages for line in page]
    margin = _MARGIN * (max(tops, default=0) - min(tops, default=0))
    lowest, highest = min(tops, default=0) + margin, max(tops, default=0) - margin
    edges = [_edges(page, lowest, highest) for page in pages]
    counts = Counter(key for page in edges for key in {(text, top) for _, text, top in page})
    running = {
        id(line)
        for page in edges
        for line, text, top in page
        if len(pages) > 1
        and (
            _PAGE_NUMBER.fullmatch(line.text)
            or sum(counts[text, near] for near in (top - 1, top, top + 1))
            >= _LEAST_PAGES
            < len(pages)
        )
    }
    return [[line for line in page if id(line) not in running] for page in pages]


def _edges(page: Sequence[Line], lowest: float, highest: float) -> list[tuple[Line, str, int]]:
    """The lines at either end of a page, with text (outermost: no numbers) and place to compare."""
    heights = sorted({line.top for line in page}, reverse=True)
    outer = {*heights[:_EDGE], *heights[-_EDGE:]}
    return [
        (line, _NUMBERS.sub("#", line.text) if line.top in outer else line.text, line.top // 4)
        for line in page
        if not line.table and (line.top in outer or line.top > highest or line.top < lowest)
    ]


LEAST_LINES = 4  # of a column
LEAST_CHARACTERS = 12  # of a column's lines, in the median: shorter ones are a table's cells
_NEAR = 2.5  # times the type's size: the distance of lines across a gutter that form a zone
MOST_SPANNING = 0.3  # share of a page's lines that cross the gutter


def in_reading_order(lines: Sequence[Line]) -> list[Line]:
    """Lines from top to bottom; between two that cross a gutter, its left side comes first."""
    gutter = find_gutter(lines)
    from_top = sorted(lines, key=lambda line: -line.top)
    if gutter is None:
        rows = itertools.groupby(from_top, lambda line: round(line.top / max(line.size, 1)))
        return [line for _, row in rows for line in sorted(row, key=lambda line: line.left)]
    ordered: list[Line] = []
    for _, zone in itertools.groupby(from_top, _zones(from_top, gutter)):
        inside = list(zone)
        left = [line for line in inside if line.right <= gutter]
        right = [line for line in inside if line.left >= gutter]
        if len(left) + len(right) == len(inside):
            ordered += [*in_reading_order(left), *in_reading_order(right)]
        else:  # other columns, or none
            ordered += in_reading_order(inside) if len(inside) < len(lines) else inside
    return ordered


def _zones(lines: Sequence[Line], gutter: float) -> Callable[[Line], int]:
    """The number of a line's zone; zones that cross a gutter alternate with those that do not."""
    zones: dict[int, int] = {}
    number = last = 0
    for index, line in enumerate(lines):
        near = [other for other in lines[index:] if line.top - other.top < _NEAR * line.size]
        after = any(other.left < gutter < other.right for other in near)
        before = last and last - line.top < _NEAR * line.size
        if line.left < gutter < line.right:
            last = line.top
        is_across = line.left < gutter < line.right or bool(before and after)
        number += is_across != number % 2
        zones[id(line)] = number
    return lambda line: zones[id(line)]


def find_gutter(lines: Sequence[Line]) -> float | None:
    """Where the fewest lines cross and columns stand on both sides; None if nowhere."""
    best: tuple[int, float] | None = None
    for x in {line.left - 1 for line in lines}:
        left = [line for line in lines if line.right <= x]
        right = [line for line in lines if line.left > x]
        spanning = len(lines) - len(left) - len(right)
        is_better = best is None or (spanning, x) < best
        if is_better and spanning <= MOST_SPANNING * len(lines) and _is_column(left):
            best = (spanning, x) if _is_column(right) else best
    return best[1] if best else None


def _is_column(lines: Sequence[Line]) -> bool:
    lengths = [len(line.text) for line in lines]
    return len(lines) >= LEAST_LINES and statistics.median(lengths) >= LEAST_CHARACTERS
