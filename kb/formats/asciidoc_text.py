"""AsciiDoc's marks: inside a line (links, the text that a title shows) and of whole lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kb.formats.links import OTHER_SCHEME, without_trailing_punctuation
from kb.formats.outline import Link, one_line
from kb.text.assets import asset
from kb.text.sentences import context_of

LONGEST_VALUE = 1_000  # characters of an attribute, and of all those that a text names

INTRINSIC: Mapping[str, str] = asset("texts")["asciidoc"]  # attributes that every document has

_ATTRIBUTE = re.compile(r"(?P<escape>\\?)\{(?P<name>\w[\w-]*)(?P<end>\\?)\}")
# None of these reads on behind a sign that could begin another, so all of a text is read once.
_IN_BRACKETS = r"\[(?P<{0}>(?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]"
_INLINE = re.compile(
    rf"""
      \+\+\+(?P<raw>[^+]+)\+\+\+ | \$\$(?P<dollars>[^$]+)\$\$
    | `\+(?P<literal>[^`\n]+)\+` | (?<![\w+])\+(?P<plus>[^\s+](?:[^+\n]*[^\s+])?)\+(?![\w+])
    | (?P<escape>\\?)\b(?P<macro>link|xref|mailto|image|icon|kbd|btn|menu|footnote|footnoteref
      |indexterm2?|stem|latexmath|asciimath|pass|anchor):(?P<target>[^\s\[\]]{{0,500}}){_IN_BRACKETS.format("text")}
    | (?P<url>https?://[^\s\[\]<>]+)(?:{_IN_BRACKETS.format("label")})?
    | <<(?P<reference>[^<>,]+)(?:,(?P<shown>[^<>]*))?>>
    | \[\[(?P<anchor>[^\[\]]*)\]\]
    | \(\(\((?P<hidden>[^()]*)\)\)\) | \(\((?P<term>[^()]+)\)\)
    """,
    re.VERBOSE,
)
_CODE = re.compile(r"(?<![\w`\"'])`(?!\+)([^`\n]+)`(?![\w`\"'])")
_AS_WRITTEN = ("raw", "dollars", "literal", "plus", "term")
_HIDDEN_MACROS = ("image", "icon", "footnote", "footnoteref", "indexterm", "anchor")
_QUOTES = (
    (re.compile(r"\"`(.+?)`\"|``(.+?)''"), "“\\1\\2”"),
    (re.compile(r"'`(.+?)`'"), "‘\\1’"),
    (re.compile(r"(?:\[[^\[\]]*\])?(\*\*|__|``|##)(.+?)\1"), r"\2"),
    (re.compile(r"(?<![\w\\])(?:\[[^\[\]]*\])?([*_`#])(\S|\S.*?\S)\1(?!\w)"), r"\2"),
    (re.compile(r"(?<!\\)([\^~])(\S+?)\1"), r"\2"),
    (re.compile(r"\\(?=[*_`#^~{<\[\\]|\.\.\.|--)"), ""),
)
# What older documents emphasize: those whose title is underlined.
_COMPATIBLE = re.compile(r"(?<![\w\\])'(\S|\S.*?\S)'(?!\w)")


def expanded(text: str, attributes: Mapping[str, str]) -> str:
    """The text with known attributes replaced by their values."""
    if "{" not in text:
        return text
    remaining = LONGEST_VALUE

    def value(match: re.Match[str]) -> str:
        nonlocal remaining
        if match["escape"] or match["end"]:
            return f"{{{match['name']}}}"
        name = match["name"].lower()
        if name not in attributes:
            return match[0]
        text_of_it = attributes[name][:remaining]
        remaining -= len(text_of_it)
        return text_of_it

    return _ATTRIBUTE.sub(value, text)


def shown_text(source: str, attributes: Mapping[str, str]) -> str:
    """What a title, a term or a paragraph shows."""
    spans: list[str] = []
    is_older = "compat-mode" in attributes

    def keep(match: re.Match[str]) -> str:
        spans.append(match[1] if is_older else _INLINE.sub(_shown, match[1]))
        return f"\0{len(spans) - 1}\0"

    text = _CODE.sub(keep, expanded(source.replace("\0", "\ufffd"), attributes))
    text = _INLINE.sub(_shown, text)
    if is_older:
        text = _COMPATIBLE.sub(r"\1", text)
    for pattern, replacement in _QUOTES:
        text = pattern.sub(replacement, text)
        text = pattern.sub(replacement, text)  # one sort may lie in itself: *__x__*
    return one_line(re.sub(r"\0(\d+)\0", lambda match: spans[int(match[1])], text))


def links_in(text: str, line: int, attributes: Mapping[str, str]) -> Iterator[Link]:
    """The links of a paragraph, an item or a cell that begins in this line, as they are written."""
    for match in _INLINE.finditer(text):
        url, kind, end = "", "inline", match.end()
        if match["macro"] in ("link", "xref") and not match["escape"]:
            url = match["target"]
        elif match["reference"]:
            url = match["reference"].strip()
            if "/" not in url and not re.search(r"\.\w+(?:#|\Z)", url):
                continue  # a place of this document
        elif match["url"]:
            url = match["url"]
            if match["label"] is None:
                url, kind = without_trailing_punctuation(url), "autolink"
                end = match.start() + len(url)
        url = expanded(url, attributes)
        if not url or url.startswith("#") or OTHER_SCHEME.match(url):
            continue
        context = context_of(text, match.start(), end, 0, len(text))
        yield Link(url, kind, line + text.count("\n", 0, match.start()), context)


def _shown(match: re.Match[str]) -> str:
    for name in _AS_WRITTEN:
        if match[name] is not None:
            return match[name]
    if match["escape"]:
        return match[0][1:]
    if match["macro"] in _HIDDEN_MACROS:
        return ""
    if match["macro"]:
        text = match["text"].replace("\\]", "]")
        if match["macro"] in ("link", "xref", "mailto"):
            text = text.split(",", 1)[0].strip('"^ ')
        return text or match["target"]
    if match["url"]:
        return (match["label"] or "").strip("^") or match["url"]
    return (match["shown"] or match["reference"] or "").strip()


# Lines


DELIMITER = re.compile(
    r"(?:-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|--|```(?!`).*|[|,:!]={3,})\Z"
)
CODE_STYLES = ("source", "listing", "literal", "pass", "stem", "latexmath", "asciimath", "comment")
VERBATIM_STYLES = ("source", "listing", "literal", "verse")  # nothing in such a paragraph counts
CONDITION = re.compile(r"(?:ifdef|ifndef|ifeval|endif)::\S*\[(?P<text>.*)\]\Z")
ENTRY = re.compile(r":(?P<name>!?\w[\w-]*!?):(?:[ \t]+(?P<value>.*))?\Z")
ATTRIBUTES = re.compile(
    r"\[(?:\[(?P<anchor>[\w:.-]*)(?:,[^\]]*)?\]|(?P<list>(?:[\w.#%{,\"'].*)?))\]\Z"
)
BLOCK_TITLE = re.compile(r"\.\.?[^ \t.]")
MACRO = re.compile(r"(?P<name>image|video|audio|toc|include)::(?P<target>[^\[]*)\[.*\]\Z")
RULE = re.compile(r"(?:'{3,}|<{3,}|([-*_])( *)\1\2\1)\Z")
AUTHOR = re.compile(r"(?P<name>\w[^<>;]{0,99}?)[ \t]*(?:<[^<>]*>)?(?:;.*)?\Z")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
# What attributes of a document say of it.
VALUES = {"doctitle": "title", "description": "description", "keywords": "tags"}
VALUES |= {"author": "author", "revdate": "date", "date": "date"}

_TITLE = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<text>\S.*)")
_UNDERLINES = "=-~^+"  # of titles on two lines, by level
_STYLE = re.compile(r"[\w-]+")
_ITEM = re.compile(
    r"[ \t]*(?P<mark>-|\*+|•|\.+|\d+\.|[A-Za-z]\.|[IVXivx]+\)|<(?:\d+|\.)>)[ \t]+(?P<text>.*)"
)
_TERM = re.compile(
    r"(?!//[^/])[ \t]*(?P<term>[^ \t].*?)(?P<mark>:::{0,2}|;;)(?:\Z|[ \t]+(?P<text>.*))"
)
_TABLES = "|,:!"
_VERBATIM = "-.+/`"


class Title(NamedTuple):
    level: int  # from 1
    text: str
    is_underlined: bool  # on two lines, as older documents write it


def title_of(line: str, following: str) -> Title | None:
    """The title that a line, or it with the next one, makes; both without trailing blanks."""
    if title := _TITLE.match(line):
        marks = title["marks"]
        return Title(len(marks), title["text"].removesuffix(f" {marks}").rstrip(), False)
    under = following.rstrip()
    if not under or under[0] not in _UNDERLINES or under.strip(under[0]):
        return None
    if abs(len(under) - len(line)) > 1 or line[0] == "." or not any(map(str.isalnum, line)):
        return None
    return Title(_UNDERLINES.index(under[0]) + 1, line, True)


def item_of(line: str) -> tuple[str, str | None, str] | None:
    """The mark that all items of a list have, the term of a definition list, and the text."""
    if item := _ITEM.match(line):
        mark = item["mark"]
        if mark[0].isdigit():
            mark = "1."
        elif mark[-1] == ")":
            mark = "I)" if mark.isupper() else "i)"
        elif mark[0].isalpha():
            mark = "A." if mark.isupper() else "a."
        elif mark[0] == "<":
            mark = "<1>"
        return None if RULE.match(line.strip()) else (mark, None, item["text"])
    term = _TERM.match(line) if "::" in line or ";;" in line else None
    return (term["mark"], term["term"], term["text"] or "") if term else None


def style_of(line: str) -> str:
    """The style that a line of attributes gives the next block; "" for none."""
    attributes = ATTRIBUTES.match(line)
    if attributes is None or not attributes["list"]:
        return ""
    style = _STYLE.match(attributes["list"])
    return "source" if attributes["list"].startswith(",") else style[0] if style else ""


def block_kind(delimiter: str, style: str) -> str:
    if delimiter == "--":
        return "fence" if style in CODE_STYLES else "directive"
    kinds = {"/": "reference", "_": "quote", **dict.fromkeys(_TABLES, "table")}
    return "fence" if delimiter[0] in "-.+`" else kinds.get(delimiter[0], "directive")


def content_of(delimiter: str, style: str) -> str:
    """What a delimiter opens: "code", the "cells" of a table, "lines" of verse, "" for blocks."""
    if delimiter[0] in _TABLES:
        return "cells"
    if delimiter[0] in _VERBATIM and (delimiter != "--" or style in CODE_STYLES):
        return "code"
    return "lines" if style == "verse" and delimiter[0] in "-_" else ""
