"""A web page that was saved as a file."""

from __future__ import annotations

import codecs
import re

from kb.formats.convert.markup import content_of, html_title, markdown_of, parse_html
from kb.formats.convert.result import Converted, ConverterError
from kb.text.decode import NoTextError, decode

__all__ = ["convert", "html_text"]

_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_HEAD = 2048  # bytes that may declare the encoding


def convert(data: bytes, name: str) -> Converted:
    """The content of the page; its `<title>` as title."""
    tree = parse_html(html_text(data))
    title = html_title(tree)
    content = content_of(tree)
    first = content.css_first("h1, h2, h3, h4, h5, h6") if content is not None else None
    heading = " ".join(first.text().split()).rstrip("¶# ") if first is not None else ""
    if heading and title.casefold().startswith(heading.casefold()):
        title = heading  # without the name of the site
    text = markdown_of(content) if content is not None else ""
    return Converted(text, title=title)


def html_text(data: bytes, declared: str = "") -> str:
    """The text of a page in the encoding that it declares, else in the one its bytes show.

    Raises:
        ConverterError: it is no text.
    """
    marked = data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    found = _CHARSET.search(data[:_HEAD])
    encoding = declared or (found[1].decode("ascii") if found else "")
    if encoding and not marked:
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeDecodeError):
            pass  # a wrong declaration
    try:
        return decode(data).text
    except NoTextError as error:
        raise ConverterError(f"is no HTML: {error}") from error
