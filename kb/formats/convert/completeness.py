"""Checks that a file's words came through, by reading it a second time in the plainest way.

A reader here knows where a format has words, and nothing of their meaning. A converter counts what
it leaves out on purpose (`Converted.left_out`); a notice tells of the other missing words.
"""

from __future__ import annotations

import email.policy
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from html import unescape
from typing import Any
from xml.etree.ElementTree import Element

from kb.formats.convert.nesting import COMMENT_END, TAG
from kb.formats.convert.packed import OLE, Package
from kb.formats.convert.result import Converted
from kb.text.assets import asset
from kb.text.counted import some_of

TOLERATED = 0.05  # of a file's words
_FEWEST = 6  # missing words that are reported: a page number is not a loss
_MOST_COMPARED = 500_000_000  # characters, for words that may be split differently: .3 s
_DOTLESS = str.maketrans("ıȷ", "ij")  # below TeX's separate accents
_SHOWN = 5


def with_losses(module: str, data: bytes, converted: Converted) -> Converted:
    """A converted file, with a notice if more of its words are missing than is tolerated."""
    try:
        source = Counter(words(SOURCES[module](data)))
    # A file that only this check cannot read is converted all the same.
    except Exception:  # noqa: BLE001
        return converted
    missing = source - Counter(words(f"{converted.title}\n{converted.text}"))
    total, left_out = source.total(), sum(converted.left_out.values())
    tolerated = max(TOLERATED * total, _FEWEST)
    if missing.total() - left_out > tolerated:
        # Words may be split differently, or have separate accents.
        solid = _plain("".join(words(converted.text)))
        candidates = missing.most_common(1 + _MOST_COMPARED // max(1, len(solid)))
        missing = Counter({w: n for w, n in candidates if solid.count(_plain(w)) < source[w]})
    count = missing.total() - left_out
    if count <= tolerated:
        return converted
    examples = some_of([f'"{word}"' for word, _ in missing.most_common()], _SHOWN)
    notice = (
        f"{count / total:.0%} of its words ({count:,} of {total:,}) are missing from its text, "
        f"such as {examples}"
    )
    return replace(converted, notices=(*converted.notices, notice))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text.translate(_DOTLESS))))


_UNSEEN, _IN_WORDS = (
    frozenset(asset("page-parts")["elements"][kind].split()) for kind in ("unseen", "in_words")
)
_BODY = re.compile(r"<body\b", re.IGNORECASE)


def _page(data: bytes) -> str:
    from kb.formats.convert.page import html_text

    text = html_text(data)
    body = _BODY.search(text)
    return _without_tags(text[body.start() :] if body else text)


def _without_tags(text: str) -> str:
    parts: list[str] = []
    place = 0
    while (tag := TAG.search(text, place)) is not None:
        parts.append(text[place : tag.start()])
        place, name = tag.end(), (tag["name"] or "").lower()
        if tag["comment"]:
            end = COMMENT_END.search(text, tag.start() + 2)
        elif name in _UNSEEN and not tag["end"] and not tag[0].endswith("/>"):
            end = re.compile(f"</{name}", re.IGNORECASE).search(text, place)
        else:
            parts.append("" if name in _IN_WORDS else " ")
            continue
        place = end.end() if end else len(text)
    return unescape("".join([*parts, text[place:]]))


def _book(data: bytes) -> str:
    from kb.formats.convert.book import spine

    package = Package(data, "EPUB")
    return "\n".join(_page(package.read(chapter)) for chapter in spine(package)[1])


_OFFICE = {
    "word": re.compile(r"word/(?!header|footer|settings|styles|numbering)[^/]*\.xml"),
    "slides": re.compile(r"ppt/(?:slides|notesSlides|diagrams)/(?!layout|colors)[^/]*\.xml"),
    "sheets": re.compile(r"xl/(?:(?:comments|drawings)[^/]*(?:/[^/]*)?)\.xml"),
    "opendocument": re.compile(r"content\.xml"),
}
# Text that appears twice, was deleted, or is written in another way.
_PASSED_OVER = frozenset(
    "Fallback moveFrom oMath rPh instrText delText tracked-changes table-of-content sequence-decls "
    "forms event-listeners scripts styles automatic-styles font-face-decls".split()
)
_FURNITURE = frozenset("dt ftr hdr sldNum header footer date-time page-number".split())
_USE = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}class"
_DIVIDES = frozenset("p h si tab br cr s line-break tc table-cell".split())


def _office(module: str) -> Callable[[bytes], str]:
    def read(data: bytes) -> str:
        if data.startswith(OLE):
            return ""  # a workbook from before 2007: only the converter reads it
        package = Package(data, module)
        names = sorted(filter(_OFFICE[module].fullmatch, package.names))
        roots = [root for name in names if (root := package.xml(name)) is not None]
        texts = ["".join(_xml_text(root, module == "opendocument")) for root in roots]
        return "\n".join([*texts, *(_cells(package) if module == "sheets" else ())])

    return read


_SHARED = re.compile(rb"""\bt=["']s["'][^<>]*>\s*<v>\s*(\d+)""")
_IN_PLACE = re.compile(r"<t(?:\s[^<>]*)?>([^<]*)")


def _cells(package: Package) -> Iterator[str]:
    """Texts of a workbook's cells; its shared list also keeps those of deleted sheets."""
    shared = package.xml("xl/sharedStrings.xml")
    texts = ["".join(_xml_text(item, False)) for item in (shared if shared is not None else ())]
    used: set[int] = set()
    for name in package.names:
        if name.startswith("xl/worksheets/") and name.endswith(".xml"):
            sheet = package.read(name)
            used |= set(map(int, _SHARED.findall(sheet)))
            yield unescape(" ".join(_IN_PLACE.findall(sheet.decode("utf-8", "replace"))))
    yield from (text for number, text in enumerate(texts) if number in used)


def _xml_text(element: Element, is_mixed: bool) -> Iterator[str]:
    """The text of elements called `t`; if mixed, of all."""
    name = element.tag.rpartition("}")[2]
    if name in _PASSED_OVER:
        return
    if name in ("sp", "frame"):  # may contain a slide's date, footer or number
        uses = (holder.get("type") for holder in element.iterfind("{*}nvSpPr/{*}nvPr/{*}ph"))
        if not _FURNITURE.isdisjoint([*uses, element.get(_USE)]):
            return
    if is_mixed or name == "t":
        yield element.text or ""
    for inner in element:
        yield from _xml_text(inner, is_mixed)
        if is_mixed:
            yield inner.tail or ""
    if name in _DIVIDES:
        yield " "


def _mail(data: bytes) -> str:
    if data.startswith(OLE):  # Outlook's
        import oxmsg

        message = oxmsg.Message.load(data)
        return message.body or _without_tags(message.html_body or "")
    return "\n".join(_mail_parts(BytesParser(policy=email.policy.default).parsebytes(data)))


def _mail_parts(part: Message) -> Iterator[str]:
    """A message's texts; of several forms of the same text, the plain one."""
    inside = part.get_payload() if part.is_multipart() else []
    parts = [inner for inner in inside if isinstance(inner, Message)]
    if part.get_content_type() == "multipart/alternative":
        parts = [inner for inner in parts if inner.get_content_type() == "text/plain"] or parts[:1]
    for inner in parts:
        yield from _mail_parts(inner)
    is_text = part.get_content_maintype() == "text" and part.get_filename() is None
    if is_text and not part.is_multipart():
        data = part.get_payload(decode=True)
        charset = part.get_content_charset() or "utf-8"
        text = data.decode(charset, "replace") if isinstance(data, bytes) else ""
        if part.get_content_subtype() == "html":
            yield _without_tags(text)
        else:
            # A quotation repeats text above, or appears once.
            yield "\n".join(line for line in text.splitlines() if not line.startswith(">"))


def _rich_text(data: bytes) -> str:
    from kb.formats.convert.rtf import plain_text, source_of

    return plain_text(source_of(data))


_TEXTS_OF_CELLS = ("source", "input", "text", "text/plain", "ename", "evalue")
_NOT_SHOWN = re.compile(r"data:[^)\s\"']*|\x1b\[[0-9;]*[A-Za-z]")


def _notebook(data: bytes) -> str:
    return _NOT_SHOWN.sub(" ", "\n".join(_cell_texts(json.loads(data))))


def _cell_texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _cell_texts(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in _TEXTS_OF_CELLS:
                yield "".join(map(str, part)) if isinstance(part, list) else str(part)
            elif key != "metadata":
                yield from _cell_texts(part)


_INDENTED = re.compile(r"^(\.(?:IP|INDENT)\b.*?)[ \t]+-?[\d.]+[a-z]?$", re.MULTILINE)
_NO_TEXT_IN_ROFF = re.compile(
    r"""
      ^[.'][ \t]*(?:de|am|ig)1?\b.*?^\.\.                       # definitions
    | ^\.TS.*?\.[ \t]*$ | ^\.EQ.*?^\.EN                        # the shape of a table, equations
    | ^[.'][ \t]*(?:\\"|[a-z]|(?:TH|TP|RS|RE|PD|IX|UC|AT|Dd|Dt|Os|Bl|Bd|Xr|Nm)\b).*?$
    | ^\.PS.*?^\.PE | \\["#].*?$                              # pictures, comments
    | \\[fFmM](?:\[[^\]]*\]|\(..|.) | \\s[-+]?\d+ | \\[bDhHlLNovSwxXzZ]'[^']*'
    | \\[*ng]?(?:\(..|\[[^\]]*\]) | \\[*ng].                   # characters, strings and numbers
    | (?<=[ \t.])[A-Z][a-z](?=\s)                              # macros of mdoc in a line
    | ^\.[ \t]*[A-Z]+
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def _manual(data: bytes) -> str:
    from kb.formats.convert.manual import source_of

    text = _NO_TEXT_IN_ROFF.sub(" ", _INDENTED.sub(r"\1", source_of(data)))
    return re.sub(r"\\[&%:/,|^]", "", text.replace("\\-", "-"))


_MOST_PAGES = 100  # of a PDF that are read again, evenly spaced
_LEADERS = re.compile(r"(?:[.·…]\s?){5,}")
_DIGITS = re.compile(r"[\divxlc]+")
_BROKEN = re.compile("[\x02\ufffe-]\n?")  # pdfium's hyphens at a line's end
_ENDS = slice(0, 2), slice(-2, None)  # lines of a page that may be a running head


def _pdf(data: bytes) -> str:
    """The text of a PDF without running heads, page numbers and tables of contents."""
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    pages = [
        [line for line in page.get_textpage().get_text_bounded().splitlines() if line.strip()]
        for page in (document[n] for n in range(0, len(document), 1 + len(document) // _MOST_PAGES))
    ]
    ends = Counter(_DIGITS.sub("", line) for page in pages for end in _ENDS for line in page[end])
    lines = (line for page in pages for line in page if ends[_DIGITS.sub("", line)] < 3)
    return _BROKEN.sub("", "\n".join(line for line in lines if not _LEADERS.search(line)))


SOURCES: dict[str, Callable[[bytes], str]] = {
    "book": _book,
    "mail": _mail,
    "manual": _manual,
    "notebook": _notebook,
    "page": _page,
    "pdf": _pdf,
    "rtf": _rich_text,
    **{module: _office(module) for module in _OFFICE},
}


# From Thai on each character counts: these scripts have no blanks, or few one-character words.
_WORD = re.compile(r"[^\W_\u0e00-\U0010ffff]+|[^\W_\x00-\u0dff]")
_INVISIBLE = re.compile("[\xad\u200b-\u200d\u2060\ufeff]")


def words(text: str) -> list[str]:
    """The words of a text in order, case folded."""
    return _WORD.findall(_INVISIBLE.sub("", text).casefold())
