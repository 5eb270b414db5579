"""What every format's reader makes of a text: headings, blocks, links, definition lists; and the
sections of it.

A term with its definition is one block, and the term is a heading. Markdown's are those that
Pandoc, PHP Markdown Extra, kramdown, Python-Markdown and Goldmark share: lines with terms, then
lines that begin with a colon, then what is indented.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from kb.text.headings import PATH_SEPARATOR

Range = tuple[int, int]  # of a text: its first character, and the one behind its last

MAXIMUM_SUMMARY = 500  # characters
MAXIMUM_HEADING = 500  # characters of one heading's source that are read
MAXIMUM_SOURCE = 4 * MAXIMUM_SUMMARY  # characters of one paragraph's source that are read


@dataclass(frozen=True, slots=True)
class Section:
    """One heading and all up to the next heading of the same or a higher level.

    Lines are 1-based and inclusive; trailing blank lines belong to no section.
    """

    position: int  # 0-based, in document order
    level: int  # 1 to 6
    heading: str  # plain text, without markup or attribute block
    # The ancestors' headings and its own, joined by " > ". The heading that is the document's
    # title is left out of its descendants' paths, since the title is indexed beside them.
    heading_path: str
    parent: int | None  # position of the enclosing section
    start_line: int
    end_line: int  # with subsections
    # Before the next heading; the heading's own last line when it has no body. Terms are in a body.
    body_end_line: int
    term_end_line: int = 0  # the last line of the term that is defined; 0: it is a heading


@dataclass(frozen=True, slots=True)
class Block:
    """One top-level block; together the blocks hold every non-blank line, in order.

    `kind` is "front_matter", "heading", "paragraph", "list_item", "definition" (a term with its
    definition, or a part of one), "fence", "code", "table", "quote", "html", "rule", "reference"
    (link definitions) or "directive".
    """

    start_line: int
    end_line: int
    kind: str


@dataclass(frozen=True, slots=True)
class Link:
    url: str  # the destination as written; of a wiki link the page with its "#part"
    kind: str  # as in `citations`
    line: int  # 1-based, of the file
    context: str  # the sentence round it, as written, on one line
    key: str = ""  # of a stored link: where it leads (see `kb.store.citations`)


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What one file says."""

    title: str
    summary: str  # the first paragraph of prose, at most `MAXIMUM_SUMMARY` characters; or ""
    front_matter: dict[str, Any]  # JSON values only
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...]
    total_lines: int
    notices: tuple[str, ...]  # what the user should be told about the file
    links: tuple[Link, ...] = ()  # in order
    # Names by which places of the document are referred to in all its collection.
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # that stand in its text, as they are written


@dataclass(frozen=True, slots=True)
class Heading:
    """One heading, or a term of a definition list; lines are 1-based and inclusive."""

    level: int  # 1 to 6; of a term, as a reader found it, 1 + the definitions that it lies in
    text: str  # several terms of one definition are joined by ", "
    start_line: int
    end_line: int
    last_line: int = 0  # of the definition, where it is a term; 0: it is a heading


@dataclass(frozen=True, slots=True)
class Body:
    """What a format's reader returns."""

    headings: Sequence[Heading]
    blocks: Sequence[Block]
    summary: str
    front_matter: dict[str, Any]
    notices: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    definitions: tuple[Heading, ...] = ()  # in the order of their terms


def build_sections(
    headings: Sequence[Heading], lines: Sequence[str], title: str
) -> tuple[Section, ...]:
    """The sections that headings and terms open; the heading that is `title` stays out of paths."""
    title_position = next(
        (i for i, h in enumerate(headings) if h.level == 1 and h.text and h.text == title), None
    )
    ends = _section_ends(headings, len(lines))
    next_headings = [len(lines) + 1] * len(headings)
    for position in range(len(headings) - 1, 0, -1):
        after = headings[position]
        is_term = after.last_line > 0
        next_headings[position - 1] = next_headings[position] if is_term else after.start_line
    sections: list[Section] = []
    for position, heading in enumerate(headings):
        parent = position - 1 if position else None
        while parent is not None and ends[parent] < heading.start_line:
            parent = sections[parent].parent
        above = "" if parent in (None, title_position) else sections[parent or 0].heading_path
        body_end = heading.last_line or next_headings[position] - 1
        sections.append(
            Section(
                position=position,
                level=heading.level,
                heading=heading.text,
                heading_path=PATH_SEPARATOR.join(filter(None, (above, heading.text))),
                parent=parent,
                start_line=heading.start_line,
                end_line=last_text_line(lines, heading.end_line, ends[position]),
                body_end_line=last_text_line(lines, heading.end_line, body_end),
                term_end_line=heading.end_line if heading.last_line else 0,
            )
        )
    return tuple(sections)


def _section_ends(headings: Sequence[Heading], total_lines: int) -> list[int]:
    ends = [heading.last_line or total_lines for heading in headings]
    open_positions: list[int] = []
    for position, heading in enumerate(headings):
        if heading.last_line:
            continue
        while open_positions and headings[open_positions[-1]].level >= heading.level:
            ends[open_positions.pop()] = heading.start_line - 1
        open_positions.append(position)
    return ends


def last_text_line(lines: Sequence[str], first: int, last: int) -> int:
    """Return the last line from `last` back to `first` that is not blank, else `first`."""
    while last > first and not lines[last - 1].strip():
        last -= 1
    return last


def cover(blocks: Iterable[Block], lines: Sequence[str]) -> list[Block]:
    """Trim blocks to their text and add the lines between them: link definitions, comments."""
    covering: list[Block] = []
    end_of_last = 0

    def add(start: int, end: int, kind: str) -> None:
        while start <= end and not lines[start - 1].strip():
            start += 1
        if start <= end:
            covering.append(Block(start, last_text_line(lines, start, end), kind))

    for block in blocks:
        add(end_of_last + 1, block.start_line - 1, "reference")
        add(max(end_of_last + 1, block.start_line), min(block.end_line, len(lines)), block.kind)
        end_of_last = max(end_of_last, block.end_line)
    add(end_of_last + 1, len(lines), "reference")
    return covering


def line_blocks(
    lines: Sequence[str],
    headings: Sequence[Heading] = (),
    kind_of: Callable[[int], str] = lambda _: "paragraph",
) -> list[Block]:
    """The headings, and between them each run of lines of one kind that are not blank."""
    in_heading = {n for h in headings for n in range(h.start_line, h.end_line + 1)}
    starts = {heading.start_line for heading in headings}
    blocks: list[Block] = []
    for number, line in enumerate(lines, start=1):
        kind = "heading" if number in in_heading else kind_of(number) if line.strip() else ""
        last = blocks[-1] if blocks else None
        goes_on = last is not None and last.kind == kind and number not in starts
        if last is not None and goes_on and last.end_line == number - 1:
            blocks[-1] = Block(last.start_line, number, kind)
        elif kind:
            blocks.append(Block(number, number, kind))
    return blocks


# Paragraphs that instruct a site generator: admonitions, includes, templates, MDX imports.
_NO_PROSE = re.compile(r"///|:::|!!!|\?\?\?|\{[%{*]|\[TOC\]|import\s.+['\"];?$|export\s+\w+\s")


def first_prose(
    blocks: Iterable[Block], lines: Sequence[str], plain_text: Callable[[str], str]
) -> str:
    """The first prose paragraph, cut for a summary, or ""; `plain_text` takes its markup off."""
    for block in blocks:
        if block.kind == "paragraph":
            source = "\n".join(lines[block.start_line - 1 : block.end_line])
            if text := prose(plain_text(source[:MAXIMUM_SOURCE])):
                return text
    return ""


def prose(text: str) -> str:
    """Return `text` cut for a summary, "" when it holds no words to read."""
    text = one_line(text)
    if _NO_PROSE.match(text) or not any(map(str.isalpha, text)):
        return ""
    if len(text) > MAXIMUM_SUMMARY:
        # Languages without spaces, and very long words, are cut where they are.
        cut = text.rfind(" ", MAXIMUM_SUMMARY // 2, MAXIMUM_SUMMARY + 1)
        text = text[: cut if cut > 0 else MAXIMUM_SUMMARY]
    return text


def one_line(text: str) -> str:
    """The text with runs of blanks as single spaces, and without NUL."""
    # SQLite's own tools end a text at NUL; Markdown shows U+FFFD for it.
    return " ".join(text.replace("\0", "\ufffd").split())


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
