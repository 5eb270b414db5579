"""A web page, as a file or fetched: its content without its site's surroundings."""

from __future__ import annotations

import codecs
import contextlib
import re
from urllib.parse import urljoin

from selectolax.lexbor import LexborNode

from kb.formats.convert.content import content_of
from kb.formats.convert.markup import HEADINGS, html_title, markdown_of, parse_html
from kb.formats.convert.result import Converted, ConverterError
from kb.text.decode import NoTextError, decode_as

# If these letters can be read, the page is neither UTF-16 nor UTF-32.
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*(?!utf-?(?:16|32))([\w.:-]+)""", re.IGNORECASE)
_LINKS = (("a", "href"), ("img", "src"))
_HEAD = 2048  # bytes that may declare the encoding


def convert(data: bytes, name: str) -> Converted:
    """A page's content under its title; `name` is its address, to resolve its links."""
    tree = parse_html(html_text(data))
    title, address = html_title(tree), name
    base = tree.css_first("base[href]")
    with contextlib.suppress(ValueError):  # malformed brackets
        if base is not None:
            address = urljoin(name, base.attributes.get("href") or "")
    content = content_of(tree)
    if content.node is None:
        return Converted("", title=title)
    if address.startswith(("http://", "https://")):
        for tag, attribute in _LINKS:
            for node in content.node.css(f"{tag}[{attribute}]"):
                _make_absolute(node, attribute, address)
    # The title without the site's name, if the first heading shows which part that is.
    first = content.node.css_first(HEADINGS)
    heading = " ".join(first.text().split()).rstrip("¶# ") if first is not None else ""
    if heading and title.casefold().startswith(heading.casefold()):
        title = heading
    return Converted(markdown_of(content.node), title=title, left_out=dict(content.left_out))


def _make_absolute(node: LexborNode, attribute: str, address: str) -> None:
    link = (node.attributes.get(attribute) or "").strip()
    if link and not link.startswith(("#", "data:")):
        with contextlib.suppress(ValueError):  # malformed brackets
            page, mark, place = urljoin(address, link).partition("#")
            is_inside = mark and page == address.partition("#")[0]
            node.attrs[attribute] = f"#{place}" if is_inside else f"{page}{mark}{place}"


def html_text(data: bytes, declared: str = "") -> str:
    """A page's text in the encoding it declares or shows; ConverterError if it is not text."""
    marked = data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    charset = _CHARSET.search(data[:_HEAD])
    encoding = declared or (charset[1].decode("ascii") if charset else "")
    try:
        return decode_as(data, "" if marked else encoding)
    except NoTextError as error:
        raise ConverterError(f"is not HTML: {error}") from error
