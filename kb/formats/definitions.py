"""Definition lists: a term with its definition is one block, and the term is a heading.

Markdown's are those that Pandoc, PHP Markdown Extra, kramdown, Python-Markdown and Goldmark share:
lines with terms, then lines that begin with a colon, then what is indented.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from kb.formats.outline import MAXIMUM_HEADING, Block, Body, Heading, cover

MOST_LEVELS = 6
MOST_TERMS = 6  # of one definition
LONGEST_TERM = 400  # characters

_MARK = re.compile(r"[ ]*:[ \t]+(?=\S)")
_OPENING = re.compile(r"[ ]*(?::|[-+*]|\d{1,9}[.)])[ \t]+(?=\S)")
_FENCE = re.compile(r"[ ]*(?P<marks>`{3,}|~{3,})")

Segment = tuple[int, int]  # first and last line of what belongs to one definition alone


def with_terms(body: Body, lines: Sequence[str]) -> Body:
    """The body with its terms as headings below the one that they stand under.

    Terms that would lie deeper than headings can are text of the definition around them.
    """
    if not body.definitions:
        return body
    terms: list[Heading] = []
    for definition in body.definitions:
        above = bisect_left(body.headings, definition.start_line, key=attrgetter("start_line"))
        level = definition.level + (body.headings[above - 1].level if above else 1)
        if level <= MOST_LEVELS:
            terms.append(replace(definition, level=level))
    outline = sorted([*body.headings, *terms], key=attrgetter("start_line"))
    blocks = cover(_blocks(body.blocks, _segments(terms)), lines)
    return replace(body, headings=outline, blocks=blocks)


def _segments(definitions: Sequence[Heading]) -> Iterator[Segment]:
    around: list[Heading] = []
    line = 0  # the first that belongs to no segment yet
    for definition in (*definitions, None):
        while around and (definition is None or around[-1].last_line < definition.start_line):
            end = around.pop().last_line
            if line <= end:
                yield line, end
                line = end + 1
        if definition is not None:
            if around and line < definition.start_line:
                yield line, definition.start_line - 1
            line = definition.start_line
            around.append(definition)


def _blocks(blocks: Sequence[Block], segments: Iterator[Segment]) -> Iterator[Block]:
    """The blocks outside of definitions, and a block for each segment of one."""
    segment = next(segments, None)
    for block in blocks:
        start = block.start_line
        while segment is not None and segment[0] <= block.end_line:
            if start < segment[0]:
                yield Block(start, segment[0] - 1, block.kind)
            yield Block(*segment, "definition")
            start = max(start, segment[1] + 1)
            segment = next(segments, None)
        if start <= block.end_line:
            yield Block(start, block.end_line, block.kind)


def find_definitions(
    blocks: Sequence[Block], lines: Sequence[str], plain: Callable[[str], str]
) -> list[Heading]:
    """The definitions of a Markdown text, in order; `plain` takes a term's markup off."""
    if not any(map(_MARK.match, lines)):
        return []
    headings = {
        line
        for block in blocks
        if block.kind == "heading"
        for line in range(block.start_line, block.end_line + 1)
    }
    may_begin = [block for block in blocks if block.kind in ("paragraph", "list_item")]
    marks = list(_marks(lines))
    definitions: list[Heading] = []
    around: list[Heading] = []
    for mark, limit in zip(marks, _limits(marks, len(lines)), strict=True):
        while around and around[-1].last_line < mark.start_line:
            around.pop()
        position = bisect_right(may_begin, mark.start_line, key=attrgetter("start_line")) - 1
        is_text = position >= 0 and may_begin[position].end_line >= mark.start_line
        if (not is_text and not around) or mark.line in headings:
            continue
        terms = (
            plain(_OPENING.sub("", line, count=1).strip())
            for line in lines[mark.start_line - 1 : mark.term_end_line]
        )
        name = ", ".join(filter(None, terms))[:MAXIMUM_HEADING]
        if not name:
            continue
        end = _end(lines, mark, limit, headings)
        definition = Heading(len(around) + 1, name, mark.start_line, mark.term_end_line, end)
        definitions.append(definition)
        around.append(definition)
    return definitions


class _Mark(NamedTuple):
    """The colon of a definition, and the lines of its terms; lines count from 1."""

    start_line: int
    term_end_line: int
    line: int
    column: int  # of the terms


def _marks(lines: Sequence[str]) -> Iterator[_Mark]:
    fence = ""
    for number, line in enumerate(lines, start=1):
        mark_sign = _MARK.match(line)
        opened = _FENCE.match(line, mark_sign.end() if mark_sign else 0)
        if fence:
            fence = "" if opened and opened["marks"].startswith(fence) else fence
            continue
        fence = opened["marks"] if opened else ""
        if mark_sign and (mark := _with_terms_above(lines, number)):
            yield mark


def _with_terms_above(lines: Sequence[str], number: int) -> _Mark | None:
    """The mark of a line that has terms above it."""
    end = number - 1
    is_loose = end > 0 and not lines[end - 1].strip()
    end -= is_loose
    if end <= 0:
        return None
    above = lines[end - 1].expandtabs(4)
    opening = _OPENING.match(above)  # of a definition or an item that begins with a term
    column = opening.end() if opening else _indent(above)
    if _indent(lines[number - 1]) - column not in range(4):
        return None
    if opening:
        return None if is_loose else _Mark(end, end, number, column)
    start = end
    for line in reversed(lines[max(0, end - MOST_TERMS) : end]):
        is_short = 0 < len(line.strip()) <= LONGEST_TERM
        if not is_short or _indent(line) != column or _MARK.match(line):
            break
        start -= 1
    if start == end:
        return None
    if start and lines[start - 1].strip():
        # Behind other text without a blank line only the last one is a term.
        if is_loose or end - start == MOST_TERMS:
            return None
        start = end - 1
    is_sentence = is_loose and any(
        line.rstrip().endswith((".", "!", "?", ":")) for line in lines[start:end]
    )
    return None if is_sentence else _Mark(start + 1, end, number, column)


def _indent(line: str) -> int:
    spaced = line.expandtabs(4) if "\t" in line else line
    return len(spaced) - len(spaced.lstrip(" "))


def _limits(marks: Sequence[_Mark], last: int) -> list[int]:
    """For each mark the line before the next one that is not indented further."""
    limits = [last] * len(marks)
    waiting: list[int] = []
    for number, mark in enumerate(marks):
        while waiting and marks[waiting[-1]].column >= mark.column:
            limits[waiting.pop()] = mark.start_line - 1
        waiting.append(number)
    return limits


def _end(lines: Sequence[str], mark: _Mark, limit: int, headings: Set[int]) -> int:
    """The last line of a definition: before text that is not indented further than its terms."""
    end = mark.line
    is_behind_blank = False
    for number in range(mark.line + 1, limit + 1):
        line = lines[number - 1]
        if not line.strip():
            is_behind_blank = True
            continue
        indent = _indent(line)
        is_inside = indent > mark.column or (indent == mark.column and _MARK.match(line))
        if number in headings or indent < mark.column or (is_behind_blank and not is_inside):
            break
        end, is_behind_blank = number, False
    return end
