"""Presentations: a heading for each slide, its text as lists, tables, and the notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree

import pptx
from pptx.enum.shapes import MSO_SHAPE_TYPE, PP_PLACEHOLDER
from pptx.exc import PackageNotFoundError

from kb.formats.convert.packed import OFFICE_MATH, Package, integer, latex, unpacking
from kb.formats.convert.plain import cell_text, protected, superscript, table_lines
from kb.formats.convert.result import Converted, ConverterError, Origin
from kb.formats.outline import one_line

_RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_RELATED, _DIAGRAM = f"{_RELATIONS}id", f"{_RELATIONS}dm"
_TITLES = (PP_PLACEHOLDER.TITLE, PP_PLACEHOLDER.CENTER_TITLE, PP_PLACEHOLDER.VERTICAL_TITLE)
_FURNITURE = (PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.SLIDE_NUMBER)
# What programs write if nobody gave a title.
_NO_TITLE = ("PowerPoint Presentation", "Presentation", "Slide 1")


def convert(data: bytes, name: str) -> Converted:
    """The first slide's title is a heading of level 1, the others' of level 2."""
    package = Package(data, "PowerPoint")
    file = package.file()
    try:
        with unpacking():
            presentation = pptx.Presentation(file)
    except (PackageNotFoundError, KeyError, ValueError) as error:
        reason = str(error).replace(str(file), name)
        raise ConverterError(f"is damaged or not a PowerPoint file: {reason}") from error
    lines: list[str] = []
    origins: list[Origin] = []
    first_title = ""
    for number, slide in enumerate(presentation.slides, start=1):
        origins.append(Origin(len(lines) + 1, "slide", str(number)))
        shapes = list(_flat(slide.shapes))
        title = next((one_line(s.text_frame.text) for s in shapes if _is(s, _TITLES)), "")
        first_title = first_title or title
        mark = "#" if number == 1 and title else "##"
        lines += [f"{mark} {protected(title) or f'Slide {number}'}", ""]
        for shape in shapes:
            if not _is(shape, _TITLES) and not _is(shape, _FURNITURE):
                lines += _shape_lines(shape)
        lines += _note_lines(slide)
        lines += _comment_lines(slide)
    properties = package.properties()
    title = properties.pop("title", "")
    if first_title or title in _NO_TITLE:
        title = first_title
    return Converted("\n".join(lines).rstrip("\n") + "\n", title, tuple(origins), properties)


def _flat(shapes: Iterable[Any]) -> Iterator[Any]:
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            yield from _flat(shape.shapes)
        else:
            yield shape


def _is(shape: Any, kinds: tuple[Any, ...]) -> bool:
    return bool(shape.is_placeholder) and shape.placeholder_format.type in kinds


def _shape_lines(shape: Any) -> Iterator[str]:
    if getattr(shape, "has_table", False):
        yield from table_lines([list(map(_cell, row.cells)) for row in shape.table.rows])
        yield ""
    elif getattr(shape, "has_chart", False):
        yield from _chart_lines(shape.chart)
    elif not shape.has_text_frame:
        yield from _diagram_lines(shape)
    else:
        paragraphs = [p for p in shape.text_frame.paragraphs if p.text.strip()]
        for paragraph in paragraphs:
            text = _linked(paragraph)
            # One paragraph in a text box is prose, several are a list's points.
            indent = "  " * paragraph.level
            yield text if len(paragraphs) == 1 else f"{indent}- {text}"
        if paragraphs:
            yield ""


def _cell(cell: Any) -> str:
    return cell_text(" ".join(map(_linked, cell.text_frame.paragraphs)))


def _linked(paragraph: Any) -> str:
    parts: list[str] = []
    runs = {id(run._r): run for run in paragraph.runs}
    for element in paragraph._p:
        run = runs.get(id(element))
        if run is not None:
            text = protected(_with_ends(run.text), at_start=not parts)
            if run._r.rPr is not None and integer(run._r.rPr.get("baseline")) > 0:
                text = superscript("".join(parts), text)
            link = run._r.rPr.find("{*}hlinkClick") if run._r.rPr is not None else None
            key = link.get(_RELATED) if link is not None else ""
            address = paragraph.part.rels[key].target_ref if key in paragraph.part.rels else ""
            parts.append(f"[{text.strip()}](<{address}>)" if address and text.strip() else text)
        elif element.tag.endswith("}br"):
            parts.append(" ")
        elif element.tag.endswith("}fld"):
            parts.append(element.findtext("{*}t") or "")
        else:
            parts += map(latex, element.iter(OFFICE_MATH))
    return one_line("".join(parts))


def _with_ends(text: str) -> str:
    """On one line, with a blank at either end that had some."""
    folded = one_line(text)
    if not folded:
        return " " if text else ""
    return " " * text[:1].isspace() + folded + " " * text[-1:].isspace()


def _chart_lines(chart: Any) -> Iterator[str]:
    """A title, and a table for each plot: python-pptx knows only some kinds of plots."""
    root = ElementTree.fromstring(chart.part.blob)
    title = root.find("{*}chart/{*}title")
    if title is not None and (text := one_line("".join(_paragraph_texts(title)))):
        yield protected(text)
        yield ""
    for plot in root.iterfind("{*}chart/{*}plotArea/*"):
        series = plot.findall("{*}ser")
        firsts = [_points(line, "cat", "xVal") for line in series]
        has_own = any(first not in ({}, firsts[0]) for first in firsts)  # as points of a scatter
        tables = [(first, [line]) for first, line in zip(firsts, series, strict=True)]
        for first, group in tables if has_own else [(firsts[0], series)] if series else []:
            names = (" ".join(_points(line, "tx").values()) for line in group)
            columns = [_points(line, "val", "yVal") for line in group]
            rows = [
                [cell_text(first.get(place)), *(_number(values.get(place)) for values in columns)]
                for place in sorted(set().union(first, *columns))
            ]
            yield from table_lines([["", *map(cell_text, names)], *rows])
            yield ""


def _points(series: ElementTree.Element, *names: str) -> dict[int, str]:
    """What is stored of a series under the first name that it has, by its place."""
    points: dict[int, str] = {}
    stored = next(filter(None.__ne__, (series.find(f"{{*}}{name}") for name in names)), None)
    if stored is not None:
        for text in stored.iterfind(".//{*}pt"):  # of the innermost level first
            at = integer(text.get("idx"))
            points[at] = f"{text.findtext('{*}v') or ''} {points.get(at, '')}".rstrip()
        if not points and (alone := stored.findtext("{*}v")):
            points[0] = alone
    return points


def _number(stored: str | None) -> str:
    try:
        return f"{float(stored or ''):.15g}"
    except ValueError:
        return cell_text(stored)


def _paragraph_texts(element: ElementTree.Element) -> Iterator[str]:
    for paragraph in element.iterfind(".//{*}p"):
        yield "".join(text.text or "" for text in paragraph.iterfind(".//{*}t")) + " "


def _diagram_lines(shape: Any) -> Iterator[str]:
    """The texts of a SmartArt graphic."""
    for relation in shape._element.iter("{*}relIds"):
        member = _related(shape.part, relation.get(_DIAGRAM) or "")
        root = ElementTree.fromstring(member.blob) if member is not None else ()
        texts = [one_line(text) for point in root for text in _paragraph_texts(point)]
        yield from (f"- {protected(text)}" for text in texts if text)
        yield ""


def _related(part: Any, key: str) -> Any:
    relation = part.rels.get(key)
    return relation.target_part if relation is not None and not relation.is_external else None


def _note_lines(slide: Any) -> Iterator[str]:
    if not slide.has_notes_slide or slide.notes_slide.notes_text_frame is None:
        return
    notes = [one_line(line) for line in slide.notes_slide.notes_text_frame.text.splitlines()]
    if any(notes):
        yield "Notes:"
        yield ""
        for line in notes:
            yield protected(line)
        yield ""


def _comment_lines(slide: Any) -> Iterator[str]:
    members = [r.target_part for r in slide.part.rels.values() if r.reltype.endswith("/comments")]
    texts = [
        one_line(" ".join(element.itertext()))
        for member in members
        for element in ElementTree.fromstring(member.blob).iter()
        if element.tag.endswith(("}text", "}txBody"))
    ]
    if any(texts):
        yield from ("Comments:", "", *(f"- {protected(text)}" for text in texts if text), "")
