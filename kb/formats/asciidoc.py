"""AsciiDoc -> titles, blocks, links and the terms of definition lists, with the lines of the file.

The rules are Asciidoctor's. No condition is decided and nothing is included: every branch is text
of this file, and an include is a link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kb.formats import asciidoc_text as marks
from kb.formats.asciidoc_text import INTRINSIC, LONGEST_VALUE, expanded, links_in, shown_text
from kb.formats.front_matter import read_front_matter
from kb.formats.outline import (
    MAXIMUM_HEADING,
    MAXIMUM_SOURCE,
    Block,
    Body,
    Heading,
    Link,
    cover,
    prose,
)

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
                self._take_blank()
            else:
                self._take(line)
            self._last = max(first, self._number) if line else self._last
            self._number += 1
        self._leave(1)
        self._end_list()
        self._end_block()

    # Lines

    def _take_blank(self) -> None:
        frame = self._frames[-1]
        self._flush()
        frame.state = "gap" if frame.lists else "start"
        if len(self._frames) == 1 and not frame.lists:
            self._end_block()

    def _take(self, line: str) -> None:
        frame = self._frames[-1]
        if condition := marks.CONDITION.match(line):
            line = condition["text"].rstrip()
            if not line or not condition[0].startswith(("ifdef", "ifndef")):
                return
        ends_item = line == "+" or marks.DELIMITER.match(line)
        if frame.state == "code" and not (frame.lists and ends_item):
            return
        if line.startswith("//") and line[2:3] != "/":
            self._take_comment()
        elif frame.state == "header" and not line.startswith("////"):
            self._take_header(line)
        elif line == "+" and frame.lists:
            self._attach()
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

    def _take_header(self, line: str) -> None:
        if entry := marks.ENTRY.match(line):
            self._set(entry)
        elif "author" not in self.values:
            if author := marks.AUTHOR.match(line):
                self.values["author"] = author["name"]
        elif date := marks.DATE.search(line):
            self.values.setdefault("date", date[0])

    def _is_metadata(self, line: str) -> bool:
        if line.startswith("["):
            return marks.ATTRIBUTES.match(line) is not None
        is_between = self._frames[-1].state in ("start", "marked", "gap", "attached")
        return is_between and bool(marks.BLOCK_TITLE.match(line) or marks.ENTRY.match(line))

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
        if entry := marks.ENTRY.match(line):
            self._set(entry)
        else:
            self._style = marks.style_of(line) or self._style

    def _take_title(self, line: str) -> bool:
        frame = self._frames[0]
        is_free = frame.state == "start" or (frame.state == "gap" and not frame.awaits_text)
        if len(self._frames) > 1 or not is_free:
            return False
        start = self._number
        title = marks.title_of(line, self._lines[start] if start < len(self._lines) else "")
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
        is_code = self._style in marks.VERBATIM_STYLES
        item = None if is_code or (is_paragraph and not frame.lists) else marks.item_of(line)
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
        is_code = self._style in (*marks.CODE_STYLES, *marks.VERBATIM_STYLES)
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
        macro = marks.MACRO.match(line)
        if macro is None and not marks.RULE.match(line):
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
            self._begin(marks.block_kind(line, self._style))
        frame.state, frame.awaits_text = ("item" if frame.lists else "start"), False
        inner = marks.content_of(line, self._style)
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

    def _attach(self) -> None:
        """The "+" that puts the next block into an item; behind a blank line, into an outer one."""
        frame = self._frames[-1]
        self._flush()
        if frame.state == "gap":
            self._shorten(max(1, len(frame.lists) - 1))
        frame.state, frame.awaits_text = "attached", False

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
        if (key := marks.VALUES.get(name)) and value:
            self.values.setdefault(key, value)
