"""EPUB books: the chapters in reading order, each as a web page."""

from __future__ import annotations

import posixpath
import unicodedata
from collections import Counter
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from kb.formats.convert.content import Content, content_of
from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.packed import Package, named_texts
from kb.formats.convert.page import html_text
from kb.formats.convert.result import Converted, ConverterError
from kb.text.counted import some_of

_CONTAINER = "META-INF/container.xml"
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
_PAGES = ("application/xhtml+xml", "text/html")


def convert(data: bytes, name: str) -> Converted:
    """All that the spine lists except the table of contents, under the book's title."""
    package = Package(data, "EPUB")
    root, chapters = spine(package)
    if "META-INF/encryption.xml" in package.names and "META-INF/rights.xml" in package.names:
        raise ConverterError("is protected against copying (DRM) and cannot be read")
    inside = set(chapters)
    parts = []
    left_out: Counter[str] = Counter()
    for chapter in chapters:
        if page := package.read(chapter):
            content = _chapter(page, chapter, inside)
            left_out += content.left_out
            if content.node is not None and (text := markdown_of(content.node)):
                parts.append(text)
    names = {"title": "title", "creator": "author", "date": "date", "language": "language"}
    missing = [chapter for chapter in chapters if chapter not in package.names]
    notices = (f"chapters that it does not hold: {some_of(missing)}",) if missing else ()
    metadata = named_texts(root.iterfind(f".//{{*}}metadata/{_DUBLIN_CORE}*"), names)
    title = metadata.pop("title", "")
    text = "\n".join(parts)
    return Converted(text, title, metadata=metadata, notices=notices, left_out=dict(left_out))


def spine(package: Package) -> tuple[ElementTree.Element, list[str]]:
    """The list of a book's content, and its chapters in order; ConverterError without one."""
    container = package.xml(_CONTAINER)
    rootfile = container.find(".//{*}rootfile") if container is not None else None
    place = rootfile.get("full-path", "") if rootfile is not None else ""
    root = package.xml(place)
    if root is None:
        raise ConverterError("is not an EPUB: it has no list of its content")
    items = {item.get("id"): item for item in root.iterfind(".//{*}manifest/{*}item")}
    chapters: dict[str, None] = {}  # in order
    keys = {_key(name): name for name in sorted(package.names, reverse=True)}
    for entry in root.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(entry.get("idref"))
        if item is None or item.get("media-type") not in _PAGES:
            continue
        if "nav" not in (item.get("properties") or "").split():
            name = _member(package, keys, posixpath.dirname(place), item.get("href") or "")
            chapters[name] = None
    return root, list(chapters)


def _member(package: Package, keys: Mapping[str, str], folder: str, address: str) -> str:
    """The member that an address leads to; if none has just that name, one that differs from it by
    case or the form of its accents."""
    address = address.partition("#")[0]
    names = [
        posixpath.normpath(posixpath.join(folder, name)).lstrip("/")
        for name in (unquote(address), address)
    ]
    exact = (name for name in names if name in package.names)
    return next(exact, keys.get(_key(names[0]), names[0]))


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _chapter(page: bytes, path: str, inside: set[str]) -> Content:
    tree = parse_html(html_text(page))
    for link in tree.css("a[href]"):
        try:
            address = urlsplit(link.attributes.get("href") or "")
        except ValueError:  # malformed brackets
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(address.path)))
        if not address.scheme and (not address.path or target in inside):
            # The chapters become one document.
            if address.fragment:
                link.attrs["href"] = f"#{address.fragment}"
            else:
                link.unwrap()
    return content_of(tree)
