"""Definition lists in Markdown: terms, then `:   ` and indented text.

html-to-markdown writes terms and definitions as equal paragraphs, so they are marked first.
`DefinitionLines` writes those of manual pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


_TERM, _BEGIN, _END = "\ufdd4", "\ufdd5", "\ufdd6"  # Unicode's noncharacters: no text has them
_HEADINGS = "h1, h2, h3, h4, h5, h6"
_MARKED = re.compile(rf"{_TERM}[ ]*")
_LINE_ENDS = re.compile(r"\s*\n\s*")
_WIDTH = 4  # of the mark, and of the blanks in front of what goes on


def mark_definitions(node: LexborNode) -> None:
    """Mark the terms and definitions of a part of a page, except those in table cells."""
    from selectolax.lexbor import LexborHTMLParser  # of the extra, which manual pages do not need

    marks = LexborHTMLParser(f"<p>{_BEGIN}</p><p>{_END}</p>").css("p")
    in_cells = {part.mem_id for part in node.css("table dt, table dd")}
    for part in node.css("dt, dd"):
        if part.mem_id in in_cells or (part.tag == "dt" and part.css_first(_HEADINGS) is not None):
            continue
        mark = marks[0] if part.tag == "dd" else _TERM
        if part.tag == "dt":
            part.unwrap_tags(["p", "div", "br"])
            for text in [text for text in part.traverse(include_text=True) if text.is_text_node]:
                if "\n" in (text.text_content or ""):
                    text.replace_with(_LINE_ENDS.sub(" ", text.text_content or ""))
        if (first := part.first_child) is not None:
            first.insert_before(mark)
        elif part.tag == "dd":
            part.insert_child(mark)
        if part.tag == "dd":
            part.insert_child(marks[1])


def write_definitions(markdown: str) -> str:
    """The Markdown of a marked part, with its definitions indented."""
    if _TERM not in markdown and _BEGIN not in markdown:
        return markdown
    lines: list[str] = []
    places: list[int] = []  # where blanks are inserted, outermost first; -1: without a term
    is_behind_term = begins = is_behind_mark = False
    for line in markdown.split("\n"):
        text = line.strip()
        if text == _BEGIN:
            places.append(len(line) - len(line.lstrip()) if is_behind_term else -1)
            begins, is_behind_term, is_behind_mark = is_behind_term, False, True
        elif text == _END:
            places = places[:-1]
            begins, is_behind_mark = False, True
        elif not text:
            is_twice = is_behind_mark and lines[-1:] == [""]
            lines += [] if is_behind_term or begins or is_twice else [""]
        else:
            is_term = _TERM in text
            lines += [""] if is_behind_term and not is_term else []
            lines.append(_indented(_MARKED.sub("", line), places, begins=begins))
            is_behind_term, begins, is_behind_mark = is_term, False, False
    return "\n".join(lines)


def _indented(line: str, places: list[int], *, begins: bool) -> str:
    done = 0
    for number, place in enumerate(places, start=1):
        if place >= 0:
            mark = ":" if begins and number == len(places) else ""
            at = place + done
            line = line[:at] + mark.ljust(_WIDTH) + line[at:]
            done += _WIDTH
    return line


@dataclass(slots=True)
class DefinitionLines:
    """Lines of Markdown, indented to the definitions that contain them."""

    lines: list[str] = field(default_factory=list)
    _margins: list[int] = field(default_factory=lambda: [0])  # of nested insets
    _is_defining: list[bool] = field(default_factory=lambda: [False])  # in each of them
    _begins: bool = False  # the next line is the first of a definition

    def add(self, lines: Iterable[str]) -> None:
        """Add a block, followed by a blank line."""
        for line in lines:
            self.lines.append(self._blanks() + line if line else "")
        if self.lines and self.lines[-1] and not self._begins:
            self.lines.append("")

    def add_term(self, term: str) -> None:
        self._is_defining[-1] = False
        self.lines.append(self._blanks() + term if self._margins[-1] else term)
        self._is_defining[-1] = self._begins = True

    def make_term(self) -> None:
        self.lines.pop()
        self._is_defining[-1] = self._begins = True

    def end_definition(self) -> None:
        """End the definition in this inset."""
        self._is_defining[-1] = False
        if self._begins:
            self.lines.append("")
            self._begins = False

    def begin_inset(self) -> None:
        """Indent what follows to the open definition."""
        self._margins.append(self._margins[-1] + _WIDTH * self._is_defining[-1])
        self._is_defining.append(False)

    def end_inset(self) -> None:
        if len(self._margins) > 1:
            self.end_definition()
            self._margins.pop()
            self._is_defining.pop()

    def end_insets(self) -> None:
        while len(self._margins) > 1:
            self.end_inset()
        self.end_definition()

    def _blanks(self) -> str:
        blanks = " " * (self._margins[-1] + _WIDTH * self._is_defining[-1])
        if self._begins and blanks:
            blanks = blanks[:-_WIDTH] + ":".ljust(_WIDTH)
        self._begins = False
        return blanks
