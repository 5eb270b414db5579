"""Word documents: mammoth tells the structure by the names of styles."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import mammoth

from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.packed import Package
from kb.formats.convert.result import Converted, ConverterError

__all__ = ["convert", "core_properties"]

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
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
"""
_MOST_LEVELS = 6


def convert(data: bytes, name: str) -> Converted:
    """Headings, lists, tables, links, footnotes and code; pictures leave their description."""
    package = Package(data, "Word")
    if "word/document.xml" not in package.names:
        raise ConverterError("is no Word file: it holds no word/document.xml")
    styles = _STYLES + "\n".join(_heading_styles(package))
    result = mammoth.convert_to_html(
        io.BytesIO(data),
        style_map=styles,
        convert_image=mammoth.images.img_element(lambda _: {"src": "data:"}),
    )
    body = parse_html(result.value).body
    text = markdown_of(body) if body is not None else ""
    properties = core_properties(package)
    title = "" if re.search(r"^# ", text, re.MULTILINE) else properties.pop("title", "")
    properties.pop("title", None)
    return Converted(text, title=title, metadata=properties)


def core_properties(package: Package) -> dict[str, str]:
    """What an Office file says about itself: title, author, created, modified."""
    root = package.xml("docProps/core.xml")
    names = {"title": "title", "creator": "author", "created": "created", "modified": "modified"}
    found = {}
    for element in root if root is not None else ():
        key = names.get(element.tag.rpartition("}")[2])
        value = " ".join((element.text or "").split())
        if key and value:
            found[key] = value
    return found


def _heading_styles(package: Package) -> Iterator[str]:
    """A rule for each style of the document's own that stands in the outline."""
    root = package.xml("word/styles.xml")
    if root is None:
        return
    styles = {
        style.get(f"{_W}styleId", ""): style
        for style in root.iter(f"{_W}style")
        if style.get(f"{_W}type") == "paragraph"
    }
    for identity in styles:
        level = _outline_level(identity, styles)
        if level is not None and level < _MOST_LEVELS and re.fullmatch(r"[\w-]+", identity):
            yield f"p.{identity} => h{level + 1}:fresh"


def _outline_level(identity: str, styles: dict[str, ElementTree.Element]) -> int | None:
    seen: set[str] = set()
    while identity in styles and identity not in seen:
        seen.add(identity)
        style = styles[identity]
        own = style.find(f"{_W}pPr/{_W}outlineLvl")
        if own is not None and (own.get(f"{_W}val") or "").isdigit():
            return int(own.get(f"{_W}val") or 0)
        base = style.find(f"{_W}basedOn")
        identity = base.get(f"{_W}val", "") if base is not None else ""
    return None
