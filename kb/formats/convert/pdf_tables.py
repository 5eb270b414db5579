"""Tables of a PDF: ruled ones by their rules, others as liteparse finds them.

Their cells replace the lines of `pdf_lines` in the same box, except lines that the cells lack:
nothing of a page is lost to a guess.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import liteparse
import pypdfium2

from kb.formats.convert.pdf_grid import grids
from kb.formats.convert.pdf_lines import (
    Line,
    find_gutter,
    in_reading_order,
    is_bold,
    is_mono,
    with_accents,
)

if TYPE_CHECKING:
    from liteparse.types import LayoutBlock, ParsedPage

LEADERS = re.compile(r"(?:\s?[.·…]){5,}\s*[\divxlc]*\s*\Z")
MOST_DIFFERENT = 0.1  # share of letters and digits that only a table or only its lines have
LEAST_TOGETHER = 0.8  # share of its lines among all from first to last; with less it is columns
MOST_EMPTY = 0.6  # share of a table's cells
MOST_PIECES = 1.3  # per line, of a page that was written column by column
MOST_ITEMS = 1500  # of a page: one with more is a map, and finding its gutter takes seconds
LEAST_MIXED = 5  # lines of two columns
LONG_CELL = 80  # characters on average: two such columns are text in columns
_WORD = re.compile(r"[^\W_]+")
_NO_SIGNS = re.compile(r"[\W_]+")


def with_tables(
    data: bytes, document: pypdfium2.PdfDocument, pages: Sequence[Sequence[Line]]
) -> list[list[Line]]:
    """The pages with each table as one line that contains its rows, in place of its lines."""
    parser = liteparse.LiteParse(
        ocr_enabled=False,  # it would fetch its models
        quiet=True,
        output_format="markdown",
        image_mode="off",
        extract_blocks=True,
        continue_on_page_error=True,
        num_workers=1,
    )
    start = data.find(b"%PDF-")  # it would hand anything else to an office program
    try:
        parsed = parser.parse(data[start:]).pages if start >= 0 else []
    except liteparse.ParseError:
        parsed = []
    changed = [
        _with_grids(page, document[index]) if page else [] for index, page in enumerate(pages)
    ]
    for page in parsed:
        index = page.page_num - 1
        changed[index] = list(_spaced(changed[index], page))
        if any(block.kind == "table" for block in page.blocks or ()):
            changed[index] = _page_with_tables(changed[index], page, document[index])
        if not any(line.table for line in changed[index]):
            changed[index] = _columns_apart(changed[index], page)
    return changed


def _spaced(lines: Sequence[Line], page: ParsedPage) -> Iterator[Line]:
    """The lines with the blanks that pdfium missed between close words."""
    texts = {_signs(item.text): item.text.strip() for item in page.text_items}
    for line in lines:
        text = texts.get(_signs(line.text), "")
        has_more = text.count(" ") > line.text.count(" ") and not line.is_mono
        yield replace(line, text=with_accents(text)) if has_more else line


def _columns_apart(lines: list[Line], page: ParsedPage) -> list[Line]:
    """The lines; their pieces if pdfium joined text of two columns."""
    items = [item for item in page.text_items if item.text.strip()]
    if not MOST_PIECES * len(lines) <= len(items) <= MOST_ITEMS:
        return lines
    pieces = [
        Line(
            text=with_accents(item.text.strip()),
            page=page.page_num,
            size=round((item.font_size or item.height) * 2) / 2,
            is_bold=is_bold(item.font_name or ""),
            is_mono=is_mono(item.font_name or ""),
            left=round(item.x),
            top=round(page.height - item.y),
            right=round(item.x + item.width),
        )
        for item in items
    ]
    has_code = sum(piece.is_mono for piece in pieces) * 4 > len(pieces)  # beside what explains it
    gutter = None if has_code else find_gutter(pieces)
    if gutter is None:
        return lines
    mixed, spanning = (
        sum(line.left < gutter < line.right for line in several) for several in (lines, pieces)
    )
    return in_reading_order(pieces) if mixed > max(LEAST_MIXED, 3 * spanning) else lines


def _with_grids(lines: Sequence[Line], page: pypdfium2.PdfPage) -> list[Line]:
    changed = list(lines)
    for left, bottom, right, top, rows in grids(page):
        near = [
            line
            for line in changed
            if left - 3 <= line.left <= right + 3 and bottom <= line.top <= top + 3
        ]
        inside = _held(near, rows)
        if inside and _is_table(rows, inside):
            changed = _in_place_of(inside, rows, changed)
    return changed


def _in_place_of(
    inside: Sequence[Line], rows: Sequence[Sequence[str]], lines: Sequence[Line]
) -> list[Line]:
    """A page's lines, with a table in place of those it contains."""
    first = lines.index(inside[0])
    has_header = len(rows[0]) > 2 or inside[0].is_bold > inside[-1].is_bold
    head = () if has_header else (tuple("" for _ in rows[0]),)
    cells = (*head, *map(tuple, rows))
    table = Line("", inside[0].page, 0, False, False, 0, inside[0].top, 0, cells)
    return [*lines[:first], table, *(line for line in lines[first:] if line not in inside)]


def _start(line: Line, page: pypdfium2.PdfPage) -> tuple[float, float]:
    """Where the line begins, from the upper left of the page as seen."""
    left, bottom, right, top = page.get_bbox()
    x, y, width, height = line.left - left, line.top - bottom, right - left, top - bottom
    seen = {0: (x, height - y), 90: (y, x), 180: (width - x, y), 270: (height - y, width - x)}
    return seen[page.get_rotation()]


def _page_with_tables(
    lines: list[Line], page: ParsedPage, pdf_page: pypdfium2.PdfPage
) -> list[Line]:
    starts = {id(line): _start(line, pdf_page) for line in lines if not line.table}
    for block in page.blocks or ():
        rows = _rows(block) if block.kind == "table" else []
        box = block.bbox
        if not rows or box is None or _is_prose(block, page):
            continue
        near = [
            line
            for line in lines
            if id(line) in starts
            and box.x - 3 <= starts[id(line)][0] <= box.x + box.width + 3
            and box.y - 4 * line.size <= starts[id(line)][1] <= box.y + box.height + 3 * line.size
        ]
        inside = _held(near, rows)
        order = [index for index, line in enumerate(lines) if line in inside]
        is_one = bool(order) and len(order) > LEAST_TOGETHER * (order[-1] - order[0])
        if is_one and _is_table(rows, inside) and not _is_text(rows, inside):
            lines = _in_place_of(inside, rows, lines)
    return lines


def _signs(text: str) -> str:
    return _NO_SIGNS.sub("", text.casefold())


def _held(lines: Sequence[Line], rows: Sequence[Sequence[str]]) -> list[Line]:
    """The lines whose words are all in the cells; a caption, or what they lack, stays."""
    cells = _signs(" ".join(cell for row in rows for cell in row))
    words = Counter(_WORD.findall(" ".join(cell for row in rows for cell in row).casefold()))
    inside = []
    for line in lines:
        line_words = Counter(_WORD.findall(line.text.casefold()))
        if _signs(line.text) in cells or line_words <= words:
            inside.append(line)
            words -= line_words
    return inside


def _rows(block: LayoutBlock) -> list[list[str]]:
    rows = [*([block.header] if block.header else []), *(block.rows or [])]
    texts = [[with_accents(" ".join(cell.text.split())) for cell in row] for row in rows]
    width = max(map(len, texts), default=0)
    return [[*row, *[""] * (width - len(row))] for row in texts]


def _is_prose(block: LayoutBlock, page: ParsedPage) -> bool:
    """Whether pieces of text continue from one column into the next."""
    starts = [cell.bbox for row in block.rows or () for cell in row[1:] if cell.bbox and cell.text]
    crossing = sum(
        abs(item.y - start.y) < 3 and item.x < start.x - 4 and item.x + item.width > start.x + 4
        for start in starts
        for item in page.text_items
    )
    return crossing * 4 > len(starts)


def _is_table(rows: Sequence[Sequence[str]], lines: Sequence[Line]) -> bool:
    cells = [cell for row in rows for cell in row]
    if len(rows) < 2 or len(rows[0]) < 2 or cells.count("") > MOST_EMPTY * len(cells):
        return False
    if sum(bool(LEADERS.search(line.text)) for line in lines) * 3 > len(lines):  # of contents
        return False
    signs = Counter(_signs("".join(cells)))
    replaced = Counter(_signs("".join(line.text for line in lines)))
    different = max((signs - replaced).total(), (replaced - signs).total())
    return different <= MOST_DIFFERENT * signs.total()


def _is_text(rows: Sequence[Sequence[str]], lines: Sequence[Line]) -> bool:
    """Whether this is code with comments beside it, or text in columns."""
    if sum(line.is_mono for line in lines) * 2 > len(lines):
        return True
    columns = (sum(map(len, column)) for column in zip(*rows, strict=True))
    return sum(length > LONG_CELL * len(rows) for length in columns) > 1
