"""PDF: pdfium gives the lines with their fonts.

Lines keep the order in which they were written. Gaps between them make paragraphs, a fixed pitch
makes code, and bookmarks name headings; without bookmarks lines in larger type are headings.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import pypdfium2
from pypdfium2 import raw

from kb.formats.convert.pdf_headings import Bookmark, headings_of, title_of
from kb.formats.convert.pdf_lines import Line, page_lines, without_furniture
from kb.formats.convert.pdf_tables import LEADERS, with_tables
from kb.formats.convert.plain import cell_text, fenced, protected, table_lines
from kb.formats.convert.result import Converted, ConverterError, Origin
from kb.formats.outline import one_line
from kb.text.counted import some_of

MOST_PAGES_NAMED = 10
_SOFT_HYPHENS = ("\x02", "\ufffe", "\u00ad")  # pdfium's, at a line's end
_SOFT_HYPHEN = re.compile(f"[{''.join(_SOFT_HYPHENS)}]")
_WORD = re.compile(r"[^\W\d_]+")
_BROKEN = re.compile(f"([^\\W\\d_]*)[{''.join(_SOFT_HYPHENS)}]([^\\W\\d_]*)")
_NO_COMMENTS = (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET)
_BULLET = re.compile(r"[•‣▪●◦∙]\s+(?=\S)")


def convert(data: bytes, name: str, ocr: str = "") -> Converted:
    """The text page by page; `ocr` recognises that of scanned pages ("": nothing)."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ConverterError("is protected by a password") from error
        raise ConverterError("is damaged or not a PDF file") from error
    document.init_forms()
    pages = [page_lines(document, index) for index in range(len(document))]
    empty = [number for number, lines in enumerate(pages, start=1) if not lines]
    recognised: dict[int, list[Line]] = {}
    notices = []
    if empty and ocr:
        from kb.formats.convert.ocr import recognise

        recognised, remark = recognise(document, [number - 1 for number in empty], ocr)
        notices.append(remark)
        pages = [lines or recognised.get(index, []) for index, lines in enumerate(pages)]
        empty = [number for number, lines in enumerate(pages, start=1) if not lines]
    if len(empty) == len(pages):
        raise ConverterError(
            "holds pictures of its pages and no text: `kb add SOURCE --ocr` reads them, or let "
            "another program for text recognition (OCR) add the text, then sync again"
        )
    metadata = _metadata(document)
    bookmarks = list(_bookmarks(document))
    pages = with_tables(data, document, pages)
    shown = without_furniture(pages)
    if not any(shown):
        shown = pages  # every line repeats on every page
    text = "\n".join(line.text for page in shown for line in page).casefold()
    words = set(_WORD.findall(_BROKEN.sub(" ", text)))  # unbroken ones
    title = title_of(shown, metadata.pop("title", ""))
    levels = headings_of(shown, bookmarks, title)
    lines: list[str] = []
    origins: list[Origin] = []
    for number, page in enumerate(shown, start=1):
        written = list(_written(page, levels, words))
        if comments := list(_comments(document, number - 1, " ".join(written))):
            written += ["", "Comments:", "", *comments]
        if written:
            origins.append(Origin(len(lines) + 1, "page", str(number)))
            lines += [*written, ""]
    if empty:
        notices.append(f"pages without text: {some_of(list(map(str, empty)), MOST_PAGES_NAMED)}")
    text = "\n".join(lines).rstrip("\n") + "\n"
    return Converted(text, title, tuple(origins), metadata, tuple(notices))


def _comments(document: pypdfium2.PdfDocument, index: int, shown: str) -> Iterator[str]:
    """A page's notes and remarks that it does not show itself, such as marked text."""
    page = document[index]
    solid = "".join(shown.split())
    for number in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        note = raw.FPDFPage_GetAnnot(page.raw, number)
        if raw.FPDFAnnot_GetSubtype(note) not in _NO_COMMENTS:
            size = raw.FPDFAnnot_GetStringValue(note, b"Contents", None, 0)
            value = (raw.FPDF_WCHAR * (size // 2 + 1))()
            raw.FPDFAnnot_GetStringValue(note, b"Contents", value, size)
            text = one_line(bytes(value)[:size].decode("utf-16-le", "replace").rstrip("\0"))
            if "".join(text.split()) not in solid:
                yield f"- {protected(text)}"
        raw.FPDFPage_CloseAnnot(note)


def _metadata(document: pypdfium2.PdfDocument) -> dict[str, str]:
    values = document.get_metadata_dict(skip_empty=True)
    names = {"Title": "title", "Author": "author", "CreationDate": "created"}
    return {
        key: one_line(values[name].replace("\0", "").strip("\ufeff\ufffd"))
        for name, key in names.items()
        if name in values
    }


def _bookmarks(document: pypdfium2.PdfDocument) -> Iterator[Bookmark]:
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        index = target.get_index() if target is not None else None
        title = one_line(bookmark.get_title())
        if index is not None and title:
            yield Bookmark(title, bookmark.level + 1, index + 1)


def _written(page: Sequence[Line], levels: dict[int, int], words: set[str]) -> Iterator[str]:
    """The lines of a page as Markdown; broken words are joined by the document's `words`."""
    gap = _usual_gap(page)
    index = 0
    before: Line | None = None
    while index < len(page):
        line = page[index]
        level = levels.get(id(line))
        block: list[str] = []
        if line.table:
            group = [line]
            yield ""
            rows = [[cell_text(_whole(cell, words)) for cell in row] for row in line.table]
            block, before = list(table_lines(rows)), None
        elif level:
            rest = itertools.takewhile(lambda x: levels.get(id(x), 0) < 0, page[index + 1 :])
            group = [line, *rest]
            block = [f"{'#' * level} {protected(_unbroken(group, words))}"]
        elif line.is_mono and not LEADERS.search(line.text):
            rest = itertools.takewhile(
                lambda x: x.is_mono and id(x) not in levels, page[index + 1 :]
            )
            group = [line, *rest]
            block = list(_code(group))
        else:
            group = _hyphenated(page, index, levels)
            text = _unbroken(group, words)
            if LEADERS.search(text):
                index += len(group)
                continue
            if before is not None and _begins_paragraph(before, line, gap):
                yield ""
            yield protected(_BULLET.sub("- ", text, count=1) if _BULLET.match(text) else text)
            before = group[-1]
        if block:
            if before is not None:
                yield ""
            yield from (*block, "")
            before = None
        index += len(group)


def _hyphenated(page: Sequence[Line], first: int, levels: dict[int, int]) -> list[Line]:
    """A line and those that continue a word it breaks off."""
    last = first
    while page[last].text.endswith(_SOFT_HYPHENS) and last + 1 < len(page):
        following = page[last + 1]
        if id(following) in levels or following.is_mono or following.table:
            break
        last += 1
    return list(page[first : last + 1])


def _unbroken(lines: Sequence[Line], words: set[str]) -> str:
    text = ""
    for line in lines:
        text += line.text if text.endswith(_SOFT_HYPHENS) else f" {line.text}"
    return one_line(_whole(text, words))


def _whole(text: str, words: set[str]) -> str:
    return _BROKEN.sub(lambda pair: _joined(pair[1], pair[2], words), text)


def _joined(first: str, second: str, words: set[str]) -> str:
    """A broken word joined; with a hyphen if both parts are words and the whole is not."""
    head, tail = first.casefold(), second.casefold()
    has_hyphen = head in words and tail in words and head + tail not in words
    return f"{first}-{second}" if has_hyphen or not second else first + second


def _usual_gap(page: Sequence[Line]) -> float:
    gaps = sorted(
        line.top - following.top
        for line, following in itertools.pairwise(page)
        if 0 < line.top - following.top < 3 * max(line.size, 6)
    )
    return gaps[len(gaps) // 3] if gaps else 0


def _begins_paragraph(before: Line, line: Line, gap: float) -> bool:
    distance = before.top - line.top
    if distance < 0:  # the next column
        return before.text.endswith((".", "!", "?", ":", "。"))
    is_other = abs(before.size - line.size) > 1
    return is_other or distance > 1.35 * gap or bool(_BULLET.match(line.text))


def _code(lines: Sequence[Line]) -> Iterator[str]:
    left = min(line.left for line in lines)
    code = []
    for line in lines:
        indent = " " * min(round((line.left - left) / max(line.size * 0.6, 1)), 40)
        code.append(indent + _SOFT_HYPHEN.sub("-", line.text))
    return fenced(code)
