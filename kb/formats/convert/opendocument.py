"""OpenDocument: texts, sheets and slides of LibreOffice, from their XML.

Text becomes a page of HTML, which is written as Markdown like any other. Cells show the text that
the file stores beside their values.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html import escape
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.packed import Package, integer, named_texts
from kb.formats.convert.plain import protected
from kb.formats.convert.result import Converted, ConverterError, Origin
from kb.formats.convert.sheets import sheet_lines
from kb.formats.outline import one_line

MOST_REPEATED = 1000  # repetitions of a row or cell of a sheet, or of blanks in a text
_HREF = "{http://www.w3.org/1999/xlink}href"
# Lists that the program makes: they repeat text, or contain what was deleted.
_LEFT_OUT = ("tracked-changes", "table-of-content", "sequence-decls", "forms", "event-listeners")
_FURNITURE = ("header", "footer", "date-time", "page-number")
_VALUES = ("string-", "date-", "time-", "boolean-", "")  # of a cell that no program displayed yet
_CODED = re.compile("_([0-9a-f]{2,4})_")  # signs that names of styles cannot hold
_RAISED = re.compile(r"super|[1-9]\d*%")
_WRAPPED = {"bold": "b", "italic": "i", "line-through": "s"}


def convert(data: bytes, name: str) -> Converted:
    """A text, a workbook or a presentation, whichever it is."""
    package = Package(data, "OpenDocument")
    if b"encryption-data" in package.read("META-INF/manifest.xml"):
        raise ConverterError("is protected by a password")
    root = package.xml("content.xml")
    body = root.find(f"{_q('office', 'body')}/*") if root is not None else None
    if root is None or body is None:
        raise ConverterError("is not an OpenDocument file: it has no content")
    names = {"title": "title", "initial-creator": "author", "creation-date": "created"}
    about = package.xml("meta.xml")
    metadata = named_texts(about.iter() if about is not None else (), names)
    title = metadata.pop("title", "")
    kind = _local(body)
    if kind == "spreadsheet":
        notices: list[str] = []
        sheets = [
            (_get(table, "table", "name"), _rows(table)) for table in _all(body, "table", "table")
        ]
        text, origins = sheet_lines(sheets, notices)
        return Converted(text, title, origins, metadata, tuple(notices))
    page = _Page(package, root)
    if kind in ("presentation", "drawing"):
        return _slides(page, body, title, metadata)
    text = _markdown("".join(page.blocks(body)) + page.notes())
    has_title = any(line.startswith("# ") for line in text.splitlines())
    return Converted(text, "" if has_title else title, metadata=metadata)


def _slides(page: _Page, body: Element, title: str, metadata: dict[str, str]) -> Converted:
    lines: list[str] = []
    origins: list[Origin] = []
    for number, slide in enumerate(_all(body, "draw", "page"), start=1):
        origins.append(Origin(len(lines) + 1, "slide", str(number)))
        heading, blocks, notes = f"Slide {number}", "", ""
        for frame in slide:
            use = _get(frame, "presentation", "class")
            if use == "title":
                heading = one_line(" ".join("".join(p.itertext()) for p in _paragraphs(frame)))
                title = title or heading
            elif _local(frame) == "notes":
                notes = "".join(page.blocks(frame))
            elif use not in _FURNITURE:
                blocks += "".join(page.blocks(frame))
        lines += [f"{'#' if number == 1 else '##'} {protected(heading)}", ""]
        lines += [*_markdown(blocks + page.notes()).splitlines(), ""]
        if (text := _markdown(notes)).strip():
            lines += ["Notes:", "", *text.splitlines(), ""]
    return Converted("\n".join(lines).rstrip("\n") + "\n", title, tuple(origins), metadata)


def _q(space: str, name: str) -> str:
    space = "drawing" if space == "draw" else space
    return f"{{urn:oasis:names:tc:opendocument:xmlns:{space}:1.0}}{name}"


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _get(element: Element, space: str, name: str) -> str:
    return element.get(_q(space, name), "")


def _all(element: Element, space: str, name: str) -> Iterator[Element]:
    return element.iter(_q(space, name))


def _paragraphs(element: Element) -> Iterator[Element]:
    return (part for part in element.iter() if part.tag in (_q("text", "p"), _q("text", "h")))


def _repeated(element: Element, what: str) -> int:
    count = integer(_get(element, "table", f"number-{what}-repeated"), 1)
    return min(count, MOST_REPEATED)


def _rows(table: Element) -> list[list[str]]:
    """What a sheet's cells show; repetition up to the sheet's end is empty."""
    rows: list[list[str]] = []
    for row in _all(table, "table", "table-row"):
        cells: list[str] = []
        for cell in row:
            texts = [_cell_text(part) for part in cell if part.tag == _q("text", "p")]
            values = [_get(cell, "office", f"{kind}value") for kind in _VALUES]
            texts = texts or list(filter(None, values))[:1]
            for comment in _all(cell, "office", "annotation"):
                texts.append(f"[comment: {' '.join(map(_cell_text, _paragraphs(comment)))}]")
            cells += ["\n".join(texts)] * _repeated(cell, "columns")
        while cells and not cells[-1]:
            cells.pop()
        rows += [cells] * (_repeated(row, "rows") if cells else 1)
    return rows


def _cell_text(paragraph: Element) -> str:
    link, text = next(_all(paragraph, "text", "a"), None), "".join(paragraph.itertext())
    return f"[{text}](<{link.get(_HREF)}>)" if link is not None and text else text


class _Page:
    def __init__(self, package: Package, root: Element) -> None:
        self._package = package
        self._notes: list[str] = []
        self._boxes: list[str] = []  # anchored in the current paragraph
        roots = [member for member in (package.xml("styles.xml"), root) if member is not None]
        self._styles = {
            _get(style, "style", "name"): style
            for r in roots
            for style in _all(r, "style", "style")
        }
        self._numbered = {
            _get(style, "style", "name")
            for r in roots
            for style in _all(r, "text", "list-style")
            if len(style) and _local(style[0]) == "list-level-style-number"
        }

    def notes(self) -> str:
        """The notes and comments since the last call, as a list."""
        items, self._notes = self._notes, []
        return f"<p>Notes:</p><ol><li>{'</li><li>'.join(items)}</li></ol>" if items else ""

    def blocks(self, element: Element) -> Iterator[str]:
        for part in element:
            kind = _local(part)
            if kind == "h":
                level = min(max(integer(_get(part, "text", "outline-level"), 1), 1), 6)
                yield f"<h{level}>{self._inline(part)}</h{level}>"
            elif kind == "p":
                yield self._paragraph(part)
            elif kind == "list":
                yield from self._list(part)
            elif kind == "table":
                yield f"<table>{''.join(self._table_rows(part))}</table>"
            elif kind == "frame":
                yield self._frame(part)
            elif kind not in _LEFT_OUT:
                yield from self.blocks(part)
            yield from self._boxes
            self._boxes = []

    def _paragraph(self, element: Element) -> str:
        text = self._inline(element)
        name = self._style_name(_get(element, "text", "style-name"))
        if "Preformatted" in name or "Source" in name:
            return f"<pre>{text}</pre>"
        if not text.strip():
            return ""
        if name == "Title":
            return f"<h1>{text}</h1>"
        return f"<blockquote>{text}</blockquote>" if "Quot" in name else f"<p>{text}</p>"

    def _list(self, element: Element) -> Iterator[str]:
        items = [item for item in element if _local(item) in ("list-item", "list-header")]
        inside = [_local(part) for item in items for part in item.iter()]
        if "h" in inside:  # headings that are numbered
            for item in items:
                yield from self.blocks(item)
            return
        tag = "ol" if _get(element, "text", "style-name") in self._numbered else "ul"
        yield f"<{tag}>"
        for item in items:
            text = "".join(self.blocks(item))
            if text.startswith("<p>") and text.count("<p>") == 1:
                text = text[3:].replace("</p>", "", 1)
            yield f"<li>{text}</li>"
        yield f"</{tag}>"

    def _table_rows(self, element: Element) -> Iterator[str]:
        for part in element:
            if _local(part) == "table-row":
                cells = "".join(
                    f"<td>{''.join(self.blocks(cell))}</td>" * _repeated(cell, "columns")
                    for cell in part
                )
                yield f"<tr>{cells}</tr>"
            elif "row" in _local(part):
                yield from self._table_rows(part)

    def _inline(self, element: Element) -> str:
        text = escape(element.text or "", quote=False)
        for part in element:
            text += self._inside(part) + escape(part.tail or "", quote=False)
        return text

    def _inside(self, part: Element) -> str:
        kind = _local(part)
        if kind == "s":
            return " " * min(integer(_get(part, "text", "c"), 1), MOST_REPEATED)
        if kind in ("tab", "line-break"):
            return " " if kind == "tab" else "<br>"
        if kind == "a":
            return f'<a href="{escape(part.get(_HREF, ""))}">{self._inline(part)}</a>'
        if kind in ("note", "annotation"):
            mark = "Comment: " if kind == "annotation" else ""
            body = part.find(_q("text", "note-body"))
            paragraphs = _paragraphs(part if body is None else body)
            self._notes.append(mark + " ".join(map(self._inline, paragraphs)))
            return f"[{len(self._notes)}]"
        if kind == "frame":
            text_of_frame = self._frame(part)
            if any(_local(inner) == "object" for inner in part):
                return text_of_frame
            self._boxes.append(text_of_frame)
            return ""
        text = self._inline(part)
        is_styled = kind == "span" and text.strip()
        return self._styled(text, _get(part, "text", "style-name")) if is_styled else text

    def _frame(self, frame: Element) -> str:
        for part in frame:
            if _local(part) == "object":
                inner = posixpath.normpath(part.get(_HREF, "").rstrip("/"))
                formula = self._package.xml(f"{inner}/content.xml")
                if formula is not None and _local(formula) == "math":
                    return _mathml(formula)
        described = [inner.text or "" for inner in frame if _local(inner) in ("title", "desc")]
        return "".join(self.blocks(frame)) or escape(" ".join(described))

    def _style_name(self, name: str) -> str:
        """The displayed name of a style, or of the one that an automatic style derives from."""
        style = self._styles.get(name)
        if style is not None and _get(style, "style", "parent-style-name") and name[1:].isdigit():
            name = _get(style, "style", "parent-style-name")
        return _CODED.sub(lambda code: chr(int(code[1], 16)), name).replace("_", " ")

    def _styled(self, text: str, name: str) -> str:
        if self._style_name(name) in ("Source Text", "Verbatim Char"):
            return f"<code>{text}</code>"
        properties = list(self._styles.get(name, ()))
        if any(_RAISED.match(_get(part, "style", "text-position")) for part in properties):
            text = f"<sup>{text}</sup>"
        looks = {value for part in properties for value in part.attrib.values()}
        for tag in (tag for look, tag in _WRAPPED.items() if look in looks):
            text = f"<{tag}>{text}</{tag}>"
        return text


def _mathml(formula: Element) -> str:
    for element in formula.iter():
        for note in [part for part in element if _local(part).startswith("annotation")]:
            element.remove(note)
        element.tag = _local(element)
    formula.tail = None
    return ElementTree.tostring(formula, encoding="unicode")


def _markdown(page: str) -> str:
    for tag, between in (("pre", "\n"), ("blockquote", "<br>")):
        page = page.replace(f"</{tag}><{tag}>", between)
    body = parse_html(page).body
    return markdown_of(body) if body is not None else ""
