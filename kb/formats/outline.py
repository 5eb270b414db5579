"""What every format's reader makes of a text: headings, blocks, links; and the sections of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
