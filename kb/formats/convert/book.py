"""EPUB books: the chapters in reading order, each as a web page."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from kb.formats.convert.markup import content_of, markdown_of, parse_html
from kb.formats.convert.packed import Package
from kb.formats.convert.page import html_text
from kb.formats.convert.result import Converted, ConverterError

__all__ = ["convert"]

_CONTAINER = "META-INF/container.xml"
_PAGES = ("application/xhtml+xml", "text/html")


def convert(data: bytes, name: str) -> Converted:
    """All that the spine lists except the table of contents, under the book's own title."""
    package = Package(data, "EPUB")
    container = package.xml(_CONTAINER)
    rootfile = container.find(".//{*}rootfile") if container is not None else None
    place = rootfile.get("full-path", "") if rootfile is not None else ""
    root = package.xml(place)
    if root is None:
        raise ConverterError("is no EPUB: it has no list of its content")
    if "META-INF/encryption.xml" in package.names and "META-INF/rights.xml" in package.names:
        raise ConverterError("is protected against copying (DRM) and cannot be read")
    chapters = list(dict.fromkeys(_chapters(root, posixpath.dirname(place))))
    inside = set(chapters)
    parts = []
    for chapter in chapters:
        page = package.read(chapter)
        if page:
            text = _chapter(page, chapter, inside)
            if text:
                parts.append(text)
    metadata = _metadata(root)
    return Converted("\n".join(parts), metadata.pop("title", ""), metadata=metadata)


def _chapters(root: ElementTree.Element, folder: str) -> Iterator[str]:
    items = {item.get("id"): item for item in root.iterfind(".//{*}manifest/{*}item")}
    for entry in root.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(entry.get("idref"))
        if item is None or item.get("media-type") not in _PAGES:
            continue
        if "nav" not in (item.get("properties") or "").split():
            yield posixpath.normpath(posixpath.join(folder, unquote(item.get("href") or "")))


def _chapter(page: bytes, path: str, inside: set[str]) -> str:
    tree = parse_html(html_text(page))
    for link in tree.css("a[href]"):
        try:
            address = urlsplit(link.attributes.get("href") or "")
        except ValueError:  # brackets that are no address
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(address.path)))
        if not address.scheme and (not address.path or target in inside):
            # The chapters are one document now.
            if address.fragment:
                link.attrs["href"] = f"#{address.fragment}"
            else:
                link.unwrap()
    content = content_of(tree)
    return markdown_of(content) if content is not None else ""


def _metadata(root: ElementTree.Element) -> dict[str, str]:
    names = {"title": "title", "creator": "author", "date": "date", "language": "language"}
    found: dict[str, str] = {}
    for element in root.iterfind(".//{*}metadata/{*}*"):
        namespace, _, tag = element.tag.rpartition("}")
        value = " ".join((element.text or "").split())
        if namespace.endswith("purl.org/dc/elements/1.1/") and value and tag in names:
            found.setdefault(names[tag], value)
    return found
