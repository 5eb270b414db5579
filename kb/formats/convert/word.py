"""Word documents: mammoth reads the structure from the names of styles.

What it would omit (formulas, text boxes, text in fields) becomes elements that it reads.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError

import mammoth
from lxml import etree
from selectolax.lexbor import LexborNode

from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.packed import OFFICE_MATH, Package, W, integer, latex
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.convert.word_numbers import Numbers

_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
# Members with something that mammoth ignores, and elements that only surround text.
_CHANGED = re.compile(rb"<m:oMath|<w:txbxContent|<w:(?:fldSimple|dir|bdo|rubyBase)\b")
# Attributes of a style that mammoth needs, and what they are by default.
_STYLE = [
    (
        re.compile(rb"<w:style(?=[\s>])(?![^<>]*\bw:%s\s*=)" % name),
        b'<w:style w:%s="%s"' % (name, usual),
    )
    for name, usual in ((b"type", b"paragraph"), (b"styleId", b""))
]
_UNWRAPPED = [f"{W}{name}" for name in ("fldSimple", "dir", "bdo", "ruby", "rubyBase")]
_FORMULA = re.compile("\ue000(\\d+)\ue001")
# What a numbered paragraph begins with: a list has its own numbers, if they are plain.
_NUMBER = re.compile("\ue002([^\ue003]*)\ue003")
_FIRST_NUMBER = re.compile("<ol><li>((?:<p>)?)\ue002([0-9]+)[.)]?\ue003")
_LIST_NUMBER = re.compile("(<li>(?:<p>)?)\ue002[0-9]+[.)]?\ue003")
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Source Code'] => pre:separator('\\n')
p[style-name='HTML Preformatted'] => pre:separator('\\n')
p[style-name='Preformatted Text'] => pre:separator('\\n')
p[style-name='Code'] => pre:separator('\\n')
p[style-name='Quote'] => blockquote > p:fresh
p[style-name='Block Text'] => blockquote > p:fresh
p[style-name='Quotations'] => blockquote > p:fresh
r[style-name='Verbatim Char'] => code
r[style-name='Source Text'] => code
r[style-name='HTML Code'] => code
comment-reference => sup
"""
_MOST_LEVELS = 6


def convert(data: bytes, name: str) -> Converted:
    """Headings, lists, tables, links, notes, comments, formulas and code; pictures leave their
    description, and tracked changes count as accepted."""
    package = Package(data, "Word")
    formulas: list[str] = []
    numbers = Numbers(package)
    styles = _STYLES + "\n".join(_heading_styles(package))
    try:
        result = mammoth.convert_to_html(
            _readable(package, formulas, numbers),
            style_map=styles,
            convert_image=mammoth.images.img_element(lambda _: {"src": "data:"}),
        )
    except OSError as error:  # mammoth follows the relationships of the package
        raise ConverterError(f"is not a Word file: {error}") from error
    except ExpatError as error:
        raise ConverterError(f"is damaged: {error}") from error
    # Comments come as a definition list, whose terms would become headings.
    page = re.sub(r"<(/?)dt\b[^>]*>", r"<\1p>", re.sub(r"</?d[ld]\b[^>]*>", "", result.value))
    page = _FIRST_NUMBER.sub(r'<ol start="\2"><li>\1', page)
    page = _NUMBER.sub(r"\1 ", _LIST_NUMBER.sub(r"\1", page))
    body = parse_html(page).body
    text = ""
    if body is not None:
        for paragraph in body.css("td > p:only-child"):  # else a one-row table looks like layout
            paragraph.unwrap()
        _end_notes(body)
        text = _FORMULA.sub(lambda mark: "".join(formulas[int(mark[1]) :][:1]), markdown_of(body))
    properties = package.properties()
    title = "" if re.search(r"^# ", text, re.MULTILINE) else properties.pop("title", "")
    properties.pop("title", None)
    return Converted(text, title=title, metadata=properties)


def _readable(package: Package, formulas: list[str], numbers: Numbers) -> io.BytesIO:
    """The package without pictures, in elements that mammoth knows; `formulas` takes LaTeX."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(package.names):
            if name.endswith((".xml", ".rels")):
                member = package.read(name)
                for style, complete in _STYLE:
                    member = style.sub(complete, member)
                if _CHANGED.search(member) or (numbers and b"<w:body" in member):
                    member = _rewritten(member, formulas, numbers)
                archive.writestr(name, member)
    return file


def _rewritten(member: bytes, formulas: list[str], numbers: Numbers) -> bytes:
    try:
        root = etree.fromstring(member, etree.XMLParser(resolve_entities=False, huge_tree=True))
    except etree.XMLSyntaxError as error:
        raise ConverterError(f"is damaged: {error}") from error
    for paragraph in root.iterfind(f"{W}body//{W}p"):
        number = numbers.next(paragraph)
        if number and paragraph.find(f".//{W}t") is not None:
            run = etree.Element(f"{W}r")
            etree.SubElement(run, f"{W}t").text = f"\ue002{number}\ue003"
            paragraph.insert(1, run)  # behind its properties
    for box in list(root.iter(f"{W}txbxContent")):
        above = [element.tag for element in box.iterancestors()]
        choice = next(box.iterancestors(f"{_MC}AlternateContent"), None)
        has_other = choice is not None and choice.find(f"{_MC}Fallback") is not None
        if f"{W}drawing" in above and not has_other:
            place = choice if choice is not None else next(box.iterancestors(f"{W}drawing"))
            etree.SubElement(place.getparent(), f"{W}pict").append(box)
    for element in list(root.iter(*_UNWRAPPED)):
        element.tag = f"{W}smartTag"
    for formula in list(root.iter(OFFICE_MATH)):
        above = formula.getparent()
        run = etree.Element(f"{W}r")
        etree.SubElement(run, f"{W}t").text = f"\ue000{len(formulas)}\ue001"
        formulas.append(latex(formula))
        run.tail = formula.tail
        above.replace(formula, run)
        if above.tag.endswith("}oMathPara"):
            above.tag = f"{W}smartTag"
    return bytes(etree.tostring(root))


def _end_notes(body: LexborNode) -> None:
    """Name the lists at the end, and drop their links, which only work in a browser."""
    for link in body.css("a[href^='#']"):
        kind, _, place = (link.attributes.get("href") or "")[1:].partition("-")
        if kind in ("footnote", "endnote", "comment"):
            if place.startswith("ref-"):
                link.decompose()
            elif kind == "comment":
                link.replace_with(f" [comment {link.text().strip('[]')}]")
            else:
                link.unwrap()
    first = body.css_first("li[id^='footnote-'], li[id^='endnote-']")
    if first is not None and first.parent is not None:
        first.parent.insert_before("Notes:")


def _heading_styles(package: Package) -> Iterator[str]:
    named = (name for name in sorted(package.names) if re.fullmatch(r"word/styles\d*\.xml", name))
    root = package.xml(next(named, ""))
    if root is None:
        return
    styles = {
        style.get(f"{W}styleId", ""): style
        for style in root.iter(f"{W}style")
        if style.get(f"{W}type") == "paragraph"
    }
    for identity in styles:
        level = _outline_level(identity, styles)
        if level is not None and 0 <= level < _MOST_LEVELS and re.fullmatch(r"[\w-]+", identity):
            yield f"p.{identity} => h{level + 1}:fresh"


def _outline_level(identity: str, styles: dict[str, ElementTree.Element]) -> int | None:
    seen: set[str] = set()
    while identity in styles and identity not in seen:
        seen.add(identity)
        style = styles[identity]
        level = style.find(f"{W}pPr/{W}outlineLvl")
        if level is not None:
            return integer(level.get(f"{W}val"), _MOST_LEVELS)
        base = style.find(f"{W}basedOn")
        identity = base.get(f"{W}val", "") if base is not None else ""
    return None
