"""AsciiDoc -> titles, blocks, links and the terms of definition lists, with the lines of the file.

The rules are Asciidoctor's. No condition is decided and nothing is included: every branch is text
of this file, and an include is a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kb.formats.front_matter import read_front_matter
from kb.formats.links import OTHER_SCHEME, without_trailing_punctuation
from kb.formats.outline import (
    MAXIMUM_HEADING,
    MAXIMUM_SOURCE,
    Block,
    Body,
    Heading,
    Link,
    cover,
    one_line,
    prose,
)
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


_MOST_FRAMES = 100  # blocks in blocks

# Between blocks; in a paragraph; in one that is indented, or code by its style; in the text of an
# item; behind attributes in it; behind a blank line in a list; behind the "+" that puts the next
# block into an item; in the document's header.
_State = Literal["start", "text", "indented", "code", "item", "marked", "gap", "attached", "header"]


def read(text: str, lines: Sequence[str], path: str = "") -> Body:
    front = read_front_matter(text)
    reader = _Reader(lines, front.line_count)
    reader.read()
    begins = [Block(1, front.line_count, "front_matter")] if front.line_count else []
    blocks = cover([*begins, *reader.blocks], lines)
    values = {**reader.values, **front.values}
    notices = (front.notice,) if front.notice else ()
    parts = reader.headings, blocks, reader.summary, values, notices, tuple(reader.links)
    terms = sorted(reader.definitions, key=lambda term: term.start_line)
    return Body(*parts, definitions=tuple(terms))


@dataclass(slots=True)
class _Frame:
    """What is open: the document, or a delimited block in it."""

    kind: str = ""  # of a block without blocks of its own: "code", "cells" or "lines"
    state: _State = "start"
    lists: list[str] = field(default_factory=list)  # marks of the items that are open
    awaits_text: bool = False  # the last item is a term that nothing was said of yet


@dataclass(slots=True)
class _Term:
    """A term whose definition goes on."""

    frame: int  # that its list lies in
    level: int  # of its list, among those of the frame
    name: str
    start_line: int
    term_end_line: int


class _Reader:
    def __init__(self, lines: Sequence[str], first: int) -> None:
        self.blocks: list[Block] = []
        self.headings: list[Heading] = []
        self.links: list[Link] = []
        self.definitions: list[Heading] = []
        self.values: dict[str, Any] = {}
        self.summary = ""
        self._lines = lines
        self._number = first + 1  # of the line that is read
        self._last = first  # of the last one that was not blank
        self._frames = [_Frame()]
        self._open: dict[str, int] = {}  # the frames by the delimiters that end them
        self._attributes = dict(INTRINSIC)
        self._block: tuple[int, str] | None = None  # where the current one begins, and its kind
        self._metadata = 0  # where the lines begin that say something of the next block
        self._style = ""  # of the next block
        self._terms: list[_Term] = []
        self._text: list[str] = []  # lines of a paragraph, an item's beginning, a row
        self._text_line = 0  # the first of them

    def read(self) -> None:
        while self._number <= len(self._lines):
            line = self._lines[self._number - 1].rstrip()
            first = self._number
            if line in self._open:
                self._leave(self._open[line])
            elif kind := self._frames[-1].kind:
                if line and kind != "code":
                    self._gather(line)
                if kind == "cells" or not line:
                    self._flush()
            elif not line:
                frame = self._frames[-1]
                self._flush()
                frame.state = "gap" if frame.lists else "start"
                if len(self._frames) == 1 and not frame.lists:
                    self._end_block()
            else:
                self._take(line)
            self._last = max(first, self._number) if line else self._last
            self._number += 1
        self._leave(1)
        self._end_list()
        self._end_block()

    # Lines

    def _take(self, line: str) -> None:
        frame = self._frames[-1]
        if condition := CONDITION.match(line):
            line = condition["text"].rstrip()
            if not line or not condition[0].startswith(("ifdef", "ifndef")):
                return
        ends_item = line == "+" or DELIMITER.match(line)
        if frame.state == "code" and not (frame.lists and ends_item):
            return
        if line.startswith("//") and line[2:3] != "/":
            self._take_comment()
        elif frame.state == "header" and not line.startswith("////"):
            if entry := ENTRY.match(line):
                self._set(entry)
            elif "author" not in self.values:
                if author := AUTHOR.match(line):
                    self.values["author"] = author["name"]
            elif date := DATE.search(line):
                self.values.setdefault("date", date[0])
        elif line == "+" and frame.lists:
            # The next block goes into the item; behind a blank line, into an outer one.
            self._flush()
            if frame.state == "gap":
                self._shorten(max(1, len(frame.lists) - 1))
            frame.state, frame.awaits_text = "attached", False
        elif self._is_metadata(line):
            self._take_metadata(line)
        elif ends_item and line != "+":
            self._enter(line)
        elif not self._take_title(line) and not self._take_item(line):
            self._take_text(line)

    def _take_comment(self) -> None:
        """A comment line separates lists, and belongs to no block."""
        frame = self._frames[-1]
        if frame.state == "gap" and not frame.awaits_text:
            self._end_list()
        elif frame.awaits_text:
            frame.state, frame.awaits_text = "item", False
        if self._text:
            self._text.append("")
        elif frame.state == "start":
            self._metadata = 0

    def _is_metadata(self, line: str) -> bool:
        if line.startswith("["):
            return ATTRIBUTES.match(line) is not None
        is_between = self._frames[-1].state in ("start", "marked", "gap", "attached")
        return is_between and bool(BLOCK_TITLE.match(line) or ENTRY.match(line))

    def _take_metadata(self, line: str) -> None:
        """Attributes, an anchor or a title of the next block, or an attribute of the document."""
        frame = self._frames[-1]
        self._flush()
        if frame.state in ("text", "indented", "item") and frame.lists:
            # It ends a list of terms, and is the beginning of one more block in any other item.
            terms = (level for level, mark in enumerate(frame.lists) if mark[0] in ":;")
            self._shorten(next(terms, len(frame.lists)))
            frame.state, frame.awaits_text = ("marked" if frame.lists else "start"), False
        elif frame.state not in ("attached", "marked"):
            self._end_list()
        if frame.state == "start" and len(self._frames) == 1:
            self._end_block()
            self._metadata = self._metadata or self._number
        if entry := ENTRY.match(line):
            self._set(entry)
        else:
            self._style = style_of(line) or self._style

    def _take_title(self, line: str) -> bool:
        frame = self._frames[0]
        is_free = frame.state == "start" or (frame.state == "gap" and not frame.awaits_text)
        if len(self._frames) > 1 or not is_free:
            return False
        start = self._number
        title = title_of(line, self._lines[start] if start < len(self._lines) else "")
        if title is None:
            return False
        self._end_list()
        self._end_block()
        level, text = title.level, self._shown(title.text)
        self._number += title.is_underlined
        if level == 1 and not self.headings and not self.blocks:
            self.values.setdefault("title", text)
            frame.state = "header"
            self._attributes |= {"compat-mode": ""} if title.is_underlined else {}
        self.headings.append(Heading(level, text, start, self._number))
        self.blocks.append(Block(start, self._number, "heading"))
        self._metadata, self._style = 0, ""
        return True

    def _take_item(self, line: str) -> bool:
        frame = self._frames[-1]
        is_paragraph = frame.state in ("text", "indented")
        is_code = self._style in VERBATIM_STYLES
        item = None if is_code or (is_paragraph and not frame.lists) else item_of(line)
        if item is None:
            return False
        mark, term, text = item
        is_sibling = mark in frame.lists
        if (is_paragraph and not is_sibling) or (frame.state == "indented" and term is None):
            return False
        level = frame.lists.index(mark) if is_sibling else len(frame.lists)
        is_text = frame.state == "gap" and frame.awaits_text and not is_sibling
        self._flush()
        is_new = term is None or not self._goes_on(term, level)
        if is_new:
            self._shorten(level)
            if len(self._frames) == 1 and level == 0:
                self._begin("list_item")
        frame.lists[level:] = [mark]
        frame.state, self._style = "item", ""
        if term is not None:
            if is_new:
                place = len(self._frames) - 1, level
                self._terms.append(_Term(*place, self._shown(term), self._number, self._number))
            self._gather(term)
            self._flush()
        frame.awaits_text = term is not None and not text and not is_text
        self._gather(text)
        return True

    def _goes_on(self, source: str, level: int) -> bool:
        """Whether a term is another name for what the last one defines."""
        last = self._terms[-1] if self._terms and self._frames[-1].awaits_text else None
        if last is None or (last.frame, last.level) != (len(self._frames) - 1, level):
            return False
        last.name = f"{last.name}, {self._shown(source)}"[:MAXIMUM_HEADING]
        last.term_end_line = self._number
        return True

    def _take_text(self, line: str) -> None:
        frame = self._frames[-1]
        is_indented = line[0] in " \t"
        if frame.state == "gap":
            if frame.awaits_text or is_indented:
                frame.state = "item" if frame.awaits_text else "indented"
                frame.awaits_text = False
            else:
                self._end_list()
        is_code = self._style in (*CODE_STYLES, *VERBATIM_STYLES)
        if frame.state == "start" and not is_code and self._take_line_block(line):
            return
        if frame.state in ("start", "marked", "attached"):
            if frame.state == "start":
                self._begin("fence" if is_code else "code" if is_indented else "paragraph")
            frame.state = "code" if is_code else "indented" if is_indented else "text"
            self._style = ""
        if frame.state in ("text", "item"):
            frame.awaits_text = False
            self._gather(line)

    def _take_line_block(self, line: str) -> bool:
        macro = MACRO.match(line)
        if macro is None and not RULE.match(line):
            return False
        self._begin("rule" if macro is None else "paragraph")
        if macro is not None and macro["name"] == "include":
            url = expanded(macro["target"], self._attributes)
            self.links.append(Link(url, "inline", self._number, line))
        self._style = ""
        self._last = self._number
        if len(self._frames) == 1:
            self._end_block()
        return True

    # What is open

    def _enter(self, line: str) -> None:
        frame = self._frames[-1]
        self._flush()
        if frame.state != "attached":
            self._end_list()
            self._begin(block_kind(line, self._style))
        frame.state, frame.awaits_text = ("item" if frame.lists else "start"), False
        inner = content_of(line, self._style)
        inner = inner or ("lines" if len(self._frames) > _MOST_FRAMES else "")
        self._style = ""
        self._open["```" if line[0] == "`" else line] = len(self._frames)
        self._frames.append(_Frame(inner))

    def _leave(self, place: int) -> None:
        """Close this frame and those in it; the line is the delimiter, or the end of the file."""
        self._flush()
        while len(self._frames) > place:
            self._end_list()
            self._frames.pop()
        self._open = {line: index for line, index in self._open.items() if index < place}
        self._style = ""
        if len(self._frames) == 1 and not self._frames[0].lists:
            self._last = min(self._number, len(self._lines))
            self._end_block()

    def _shorten(self, level: int) -> None:
        """Close the frame's lists from this level on, and their terms."""
        frame, place = self._frames[-1], len(self._frames) - 1
        while self._terms and self._terms[-1].frame == place and self._terms[-1].level >= level:
            term = self._terms.pop()
            place_of_term = term.start_line, term.term_end_line, self._last
            self.definitions.append(Heading(len(self._terms) + 1, term.name, *place_of_term))
        del frame.lists[level:]

    def _end_list(self) -> None:
        frame = self._frames[-1]
        self._flush()
        self._shorten(0)
        frame.awaits_text = False
        if frame.state != "header":
            frame.state = "start"

    def _begin(self, kind: str) -> None:
        """Begin a block of the document; blocks in other blocks are parts of those."""
        if len(self._frames) == 1:
            self._end_block()
            self._block = (self._metadata or self._number, kind)
            self._metadata = 0

    def _end_block(self) -> None:
        if self._block is not None:
            self.blocks.append(Block(self._block[0], self._last, self._block[1]))
            self._block = None

    # Text

    def _gather(self, line: str) -> None:
        if not self._text:
            self._text_line = self._number
        self._text.append(line)

    def _flush(self) -> None:
        if not self._text:
            return
        text = "\n".join(self._text)
        self._text = []
        self.links += links_in(text, self._text_line, self._attributes)
        is_paragraph = self._frames[0].state == "text" and not self._frames[0].lists
        if is_paragraph and not self.summary and len(self._frames) == 1:
            self.summary = prose(shown_text(text[:MAXIMUM_SOURCE], self._attributes))

    def _shown(self, source: str) -> str:
        return shown_text(source[:MAXIMUM_SOURCE], self._attributes)[:MAXIMUM_HEADING]

    def _set(self, entry: re.Match[str]) -> None:
        """Set an attribute of the document, whose value may continue in the next lines."""
        name, parts = entry["name"].lower(), [entry["value"] or ""]
        while parts[-1].endswith((" \\", " +")) and self._number < len(self._lines):
            parts[-1] = parts[-1][:-2].rstrip()
            parts.append(self._lines[self._number].strip())
            self._number += 1
        if "!" in name:
            self._attributes.pop(name.strip("!"), None)
            return
        value = expanded(" ".join(parts), self._attributes)[:LONGEST_VALUE]
        self._attributes[name] = value
        if (key := VALUES.get(name)) and value:
            self.values.setdefault(key, value)
