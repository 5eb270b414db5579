"""What a passage that begins inside a block needs in front of it to be understood.

A row of a long table needs the header, an item the line that says what is listed, code the
sentence before it. Such a lead is a range of the document's text, which is embedded, indexed and
shown with the passage; the passage keeps its lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

from kb.formats.outline import Range

NO_LEAD: Range = (0, 0)

LONGEST_INTRODUCTION = 200  # characters of a sentence; of a longer one its end
_MOST_HEADER_LINES = 6
_LINE_END = re.compile("\n")
_LONGEST_HTML_HEADER = 2_000

_INTRODUCED = frozenset({"list_item", "fence", "code", "table", "directive"})
_SENTENCE_END = re.compile(r"[.!?…:][\"'”’»)\]*_]*\s+(?=\S)|[。！？：][”’」』）]*(?=\S)")
_RULE_SIGNS = frozenset("-=|+: \t>")
_ASCIIDOC_TABLE = re.compile(r"^[|,:!]={3,}[ \t]*$")
_HTML_HEADER = re.compile(r"<thead\b.*?</thead>|<tr\b(?:(?!</tr>).)*?<th\b.*?</tr>", re.I | re.S)
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?(?:\d{1,9}|[A-Za-z#])[.)])[ \t]+\S")


def introduction(text: str, block: Range, kind: str) -> Range:
    """The last sentence of a block that may introduce the next one."""
    if kind != "paragraph":
        return NO_LEAD
    start, end = block
    end = start + len(text[start:end].rstrip())
    low = max(start, end - LONGEST_INTRODUCTION)
    places = [match.end() for match in _SENTENCE_END.finditer(text, low, end)]
    if not places and low > start:
        space = text.find(" ", low, end)
        places = [space + 1 if space >= 0 else low]
    return (places[-1] if places else start), end


class Leads:
    """The leads of one block, by where a passage begins in it."""

    def __init__(
        self, text: str, block: Range, kind: str, introduced_by: Range, terms: Sequence[Range] = ()
    ) -> None:
        self._text, self._block, self._kind = text, block, kind
        self._intro = introduced_by if kind in _INTRODUCED else NO_LEAD
        self._term = terms[0] if terms else NO_LEAD
        # A definition that goes on belongs to its term, one that begins to the term around it.
        self._intro = next((term for term in terms if term[0] < block[0]), self._intro)

    def at(self, place: int) -> Range:
        """The lead of a passage that begins at this position."""
        if place <= self._block[0]:
            return self._intro
        number = bisect_right(self._inner, place, key=itemgetter(0))
        return self._inner[number - 1][1] if number else self._intro

    @property
    def different(self) -> set[Range]:
        return {self._intro, *(lead for _, lead in self._inner)}

    @cached_property
    def _inner(self) -> list[tuple[int, Range]]:
        # Most blocks fit into a passage, and nobody asks what their lines hang on.
        if self._term != NO_LEAD:
            return [(max(self._term[1], self._block[0]), self._term)]
        return list(_inside(self._text, self._block, self._kind, self._intro))


def _inside(text: str, block: Range, kind: str, intro: Range) -> Iterator[tuple[int, Range]]:
    """From which position on which lead applies, after the block's beginning."""
    lines = _lines(text, block)
    if len(lines) < 2:
        return
    header = NO_LEAD
    if kind in ("table", "paragraph"):
        header = _header(text, lines)
    elif kind == "html":
        header = _html_header(text, block)
    if header != NO_LEAD:
        yield header[1], header
    elif kind in ("fence", "directive"):
        if re.search(r"\w", text[slice(*lines[0])]):  # it names the language, or the title
            opening = lines[0] if intro == NO_LEAD else (intro[0], lines[0][1])
            yield lines[1][0], opening
    elif kind in ("list_item", "paragraph"):
        yield from _hanging(text, lines, intro, is_list=kind == "list_item")


def _hanging(
    text: str, lines: Sequence[Range], intro: Range, *, is_list: bool
) -> Iterator[tuple[int, Range]]:
    """Indented lines belong to the item or line above them."""
    above: list[tuple[int, Range]] = []  # indentation and line of what a line may hang on
    for number, line in enumerate(lines):
        indent = _trimmed(text, line)[0] - line[0]
        opens = _ITEM.match(text, *line) is not None if is_list else indent == 0
        if opens or number == 0:
            above = [line_above for line_above in above if line_above[0] < indent]
        inner = [line_above for at, line_above in above if at < indent]
        if number:
            yield line[0], inner[-1] if inner else intro
        if opens or number == 0:
            above.append((indent, _trimmed(text, line)))


def _header(text: str, lines: Sequence[Range]) -> Range:
    """The header row of a table: above a rule, between two, or the first of an AsciiDoc table."""
    texts = [text[start:end] for start, end in lines[:_MOST_HEADER_LINES]]
    rules = [number for number, line in enumerate(texts) if _is_rule(line)]
    if rules and rules[0] == 1 and "|" in texts[0]:
        return _trimmed(text, lines[0])
    if len(rules) > 1 and rules[0] == 0 and "=" in texts[rules[1]] and rules[1] > 1:
        return _trimmed(text, (lines[1][0], lines[rules[1] - 1][1]))
    opening = next((i for i, line in enumerate(texts) if _ASCIIDOC_TABLE.match(line)), len(texts))
    if opening + 1 < len(texts) and len(lines) > opening + 2 and not _is_rule(texts[opening + 1]):
        return _trimmed(text, lines[opening + 1])
    return NO_LEAD


def _html_header(text: str, block: Range) -> Range:
    start, end = block
    end = min(end, start + _LONGEST_HTML_HEADER)
    match = _HTML_HEADER.search(text, start, end)
    return match.span() if match and "<table" in text[start : match.end()].lower() else NO_LEAD


def _is_rule(line: str) -> bool:
    signs = set(line)
    return bool(signs & {"-", "="}) and signs <= _RULE_SIGNS


def _lines(text: str, block: Range) -> list[Range]:
    """The lines of a block that are not blank."""
    start, end = block
    ends = [start - 1, *(m.start() for m in _LINE_END.finditer(text, start, end)), end]
    lines = [(before + 1, after) for before, after in pairwise(ends)]
    return [(first, last) for first, last in lines if text[first:last].strip()]


def _trimmed(text: str, line: Range) -> Range:
    start, end = line
    raw = text[start:end]
    start += len(raw) - len(raw.lstrip())
    return start, start + len(raw.strip())
