"""A web page that was saved as a file."""

from __future__ import annotations

import codecs
import re

from selectolax.lexbor import LexborNode

from kb.formats.convert.markup import content_of, html_title, markdown_of, parse_html
from kb.formats.convert.result import Converted, ConverterError
from kb.text.decode import NoTextError, decode_as

__all__ = ["convert", "html_text", "page_title"]

# Where these very letters can be read the page is neither UTF-16 nor UTF-32.
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*(?!utf-?(?:16|32))([\w.:-]+)""", re.IGNORECASE)
_HEAD = 2048  # bytes that may declare the encoding


def convert(data: bytes, name: str) -> Converted:
    """The content of the page; its `<title>` as title."""
    tree = parse_html(html_text(data))
    title = html_title(tree)
    content = content_of(tree)
    if content is None:
        return Converted("", title=title)
    title = page_title(title, content)
    return Converted(markdown_of(content), title=title)


def page_title(title: str, content: LexborNode) -> str:
    """A page's title without the name of the site, where its first heading tells them apart."""
    first = content.css_first("h1, h2, h3, h4, h5, h6")
    heading = " ".join(first.text().split()).rstrip("¶# ") if first is not None else ""
    return heading if heading and title.casefold().startswith(heading.casefold()) else title


def html_text(data: bytes, declared: str = "") -> str:
    """The text of a page in the encoding that it declares, else in the one its bytes show.

    Raises:
        ConverterError: it is no text.
    """
    marked = data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    found = _CHARSET.search(data[:_HEAD])
    encoding = declared or (found[1].decode("ascii") if found else "")
    try:
        return decode_as(data, "" if marked else encoding)
    except NoTextError as error:
        raise ConverterError(f"is no HTML: {error}") from error
