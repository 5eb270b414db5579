"""PDF: pdfium gives the lines with their fonts; headings are found by bookmarks, else by size.

A PDF says where letters stand, not what they mean. What is taken from it: the lines in the order
in which they were written, paragraphs by the gaps between them, code by its fixed pitch, headings
as its own bookmarks name them. Where there are no bookmarks, lines in larger type are headings.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import pypdfium2
import pypdfium2.raw as pdfium

from kb.formats.convert.pdf_headings import Bookmark, headings_of, title_of
from kb.formats.convert.pdf_lines import Line, without_furniture
from kb.formats.convert.plain import fenced, protected
from kb.formats.convert.result import Converted, ConverterError, Place
from kb.formats.outline import one_line
from kb.text.counted import some_of

__all__ = ["convert"]

_MONO = re.compile(r"mono|courier|consol|typewriter|menlo|cmtt|sftt|lmtt|fixed|code", re.IGNORECASE)
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx|medi\b", re.IGNORECASE)
BOLD_WEIGHT = 600
MOST_PAGES_NAMED = 10
# pdfium's sign for a hyphen that it takes for one of the line's end.
_SOFT_HYPHENS = ("\x02", "\ufffe", "\u00ad")
_SOFT_HYPHEN = re.compile(f"[{''.join(_SOFT_HYPHENS)}]")
_BULLET = re.compile(r"[•‣▪●◦∙]\s+(?=\S)")
_LEADERS = re.compile(r"(?:\s?[.·…]){5,}\s*[\divxlc]*\s*\Z")


def convert(data: bytes, name: str) -> Converted:
    """The text page by page."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ConverterError("is protected by a password") from error
        raise ConverterError("is damaged or no PDF file") from error
    pages = [_page_lines(document, index) for index in range(len(document))]
    empty = [number for number, lines in enumerate(pages, start=1) if not lines]
    if len(empty) == len(pages):
        raise ConverterError(
            "holds pictures of its pages and no text: let a program for text recognition (OCR) "
            "add the text, then sync again"
        )
    metadata = _metadata(document)
    bookmarks = list(_bookmarks(document))
    kept = without_furniture(pages)
    title = title_of(kept, metadata.pop("title", ""))
    levels = headings_of(kept, bookmarks, title)
    lines: list[str] = []
    places: list[Place] = []
    for number, page in enumerate(kept, start=1):
        written = list(_written(page, levels))
        if written:
            places.append(Place(len(lines) + 1, "page", str(number)))
            lines += [*written, ""]
    notices = []
    if empty:
        notices.append(f"pages without text: {some_of(list(map(str, empty)), MOST_PAGES_NAMED)}")
    text = "\n".join(lines).rstrip("\n") + "\n"
    return Converted(text, title, tuple(places), metadata, tuple(notices))


# Reading


def _page_lines(document: pypdfium2.PdfDocument, index: int) -> list[Line]:
    try:
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
    position = 0
    for part in text.split("\r\n"):
        visible = part.strip()
        if visible:
            first = position + len(part) - len(part.lstrip())
            yield font.line(_cleaned(visible), first, first + len(visible) - 1, page)
        position += len(part) + 2


def _cleaned(text: str) -> str:
    return "".join(c for c in text if c >= " " or c in "\t\x02")


class _Font:
    """How single characters of a page are set."""

    def __init__(self, text_page: pypdfium2.PdfTextPage) -> None:
        self._page = text_page
        self._box = pdfium.FS_RECTF()
        self._name = ctypes.create_string_buffer(256)
        self._flags = ctypes.c_int()

    def line(self, text: str, first: int, last: int, page: int) -> Line:
        """A line with the type of its first character; code is set in one pitch to its end."""
        index = first
        pdfium.FPDFText_GetLooseCharBox(self._page, index, self._box)
        size = pdfium.FPDFText_GetFontSize(self._page, index)
        height = self._box.top - self._box.bottom
        if size < 3 or size > 3 * height > 0:  # the type is scaled by the page, not by the font
            size = height
        name = self._font(index)
        weight = pdfium.FPDFText_GetFontWeight(self._page, index)
        return Line(
            text=text,
            page=page,
            size=round(size * 2) / 2,
            is_bold=bool(_BOLD.search(name)) or (weight >= BOLD_WEIGHT and not name),
            is_mono=bool(_MONO.search(name)) and bool(_MONO.search(self._font(last))),
            left=round(self._box.left),
            top=round(self._box.top),
        )

    def _font(self, index: int) -> str:
        length = pdfium.FPDFText_GetFontInfo(self._page, index, self._name, 256, self._flags)
        return self._name.raw[: max(0, min(length, 256) - 1)].decode("latin-1")


def _metadata(document: pypdfium2.PdfDocument) -> dict[str, str]:
    found = document.get_metadata_dict(skip_empty=True)
    names = {"Title": "title", "Author": "author", "CreationDate": "created"}
    return {key: one_line(found[name]) for name, key in names.items() if name in found}


def _bookmarks(document: pypdfium2.PdfDocument) -> Iterator[Bookmark]:
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        index = target.get_index() if target is not None else None
        title = one_line(bookmark.get_title())
        if index is not None and title:
            yield Bookmark(title, bookmark.level + 1, index + 1)


# Writing


def _written(page: Sequence[Line], levels: dict[int, int]) -> Iterator[str]:
    """The lines of a page as Markdown; `levels` tells the level of headings by their identity."""
    gap = _usual_gap(page)
    index = 0
    before: Line | None = None
    while index < len(page):
        line = page[index]
        level = levels.get(id(line))
        if level:
            group = [line, *_following(page, index, lambda other: levels.get(id(other), 0) < 0)]
            if before is not None:
                yield ""
            yield f"{'#' * level} {protected(_unbroken(group))}"
            yield ""
            before = None
        elif line.is_mono and not _LEADERS.search(line.text):
            group = [line, *_following(page, index, lambda x: x.is_mono and id(x) not in levels)]
            if before is not None:
                yield ""
            yield from _code(group)
            yield ""
            before = None
        else:
            group = _hyphenated(page, index, levels)
            text = _unbroken(group)
            if _LEADERS.search(text):
                index += len(group)
                continue
            if before is not None and _begins_paragraph(before, line, gap):
                yield ""
            yield protected(_BULLET.sub("- ", text, count=1) if _BULLET.match(text) else text)
            before = group[-1]
        index += len(group)


def _following(page: Sequence[Line], first: int, belongs: Callable[[Line], bool]) -> Iterator[Line]:
    return itertools.takewhile(belongs, page[first + 1 :])


def _hyphenated(page: Sequence[Line], first: int, levels: dict[int, int]) -> list[Line]:
    """A line and those that go on with a word that it breaks off."""
    last = first
    while page[last].text.endswith(_SOFT_HYPHENS) and last + 1 < len(page):
        following = page[last + 1]
        if id(following) in levels or following.is_mono:
            break
        last += 1
    return list(page[first : last + 1])


def _unbroken(lines: Sequence[Line]) -> str:
    text = ""
    for line in lines:
        if text.endswith(_SOFT_HYPHENS):
            text = text[:-1] + line.text
        else:
            text = f"{text} {line.text}".strip()
    if text.endswith(_SOFT_HYPHENS):
        text = text[:-1] + "-"
    return one_line(_SOFT_HYPHEN.sub("", text))


def _usual_gap(page: Sequence[Line]) -> float:
    """The distance between two lines of a paragraph."""
    gaps = sorted(
        one.top - other.top
        for one, other in itertools.pairwise(page)
        if 0 < one.top - other.top < 3 * max(one.size, 6)
    )
    return gaps[len(gaps) // 3] if gaps else 0


def _begins_paragraph(before: Line, line: Line, gap: float) -> bool:
    distance = before.top - line.top
    if distance < 0:  # the next column
        return before.text.endswith((".", "!", "?", ":", "。"))
    is_other = abs(before.size - line.size) > 1
    return is_other or distance > 1.35 * gap or bool(_BULLET.match(line.text))


def _code(lines: Sequence[Line]) -> Iterator[str]:
    """Code, indented as it stands on the page."""
    left = min(line.left for line in lines)
    code = []
    for line in lines:
        width = max(line.size * 0.6, 1)
        indent = " " * min(round((line.left - left) / width), 40)
        code.append(indent + _SOFT_HYPHEN.sub("-", line.text))
    return fenced(code)
