"""The text of one file -> title, summary, front matter, sections and blocks with their lines.

Markdown (markdown-it-py) and reStructuredText (docutils) have headings; any other text is
paragraphs. A heading inside a list or a block quote belongs to that list or quote and opens no
section, as in the outlines that editors and GitHub show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kb.formats.front_matter import front_matter_title, read_front_matter

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from kb.formats.links import Link

MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdx"})
RESTRUCTURED_TEXT_SUFFIXES = frozenset({".rst"})

MAXIMUM_SUMMARY = 500  # characters
MAXIMUM_HEADING = 500  # characters of one heading's source that are read
MAXIMUM_SOURCE = 4 * MAXIMUM_SUMMARY  # characters of one paragraph's source that are read

PATH_SEPARATOR = " > "


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
    body_end_line: int  # before the next heading; the heading's own last line when it has no body


@dataclass(frozen=True, slots=True)
class Block:
    """One top-level block; together the blocks hold every non-blank line, in order.

    `kind` is "front_matter", "heading", "paragraph", "list_item", "fence", "code", "table",
    "quote", "html", "rule", "reference" (link definitions) or "directive".
    """

    start_line: int
    end_line: int
    kind: str


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What one file says about itself."""

    title: str
    summary: str  # the first paragraph of prose, at most `MAXIMUM_SUMMARY` characters; or ""
    front_matter: dict[str, Any]  # JSON values only
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...]
    total_lines: int
    notices: tuple[str, ...]  # what the user should be told about the file
    links: tuple[Link, ...] = ()  # of Markdown, in order


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    text: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class _Body:
    """What one format's reader found."""

    headings: Sequence[_Heading]
    blocks: Sequence[Block]
    summary: str
    front_matter: dict[str, Any]
    notices: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


def parse(text: str, path: str) -> ParsedDocument:
    """Parse `text` (decoded, no BOM, lines ended by "\\n" alone) by the suffix of `path`.

    Never raises on any text: what cannot be read as its format is read as plain text, with a
    notice. Only "\\n" ends a line, so line numbers are those of an editor.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in MARKDOWN_SUFFIXES:
        body = _read_markdown(text, lines)
    elif suffix in RESTRUCTURED_TEXT_SUFFIXES:
        body = _read_restructured_text(text, lines)
    else:
        body = _read_plain_text(lines)
    first_heading = next((h.text for h in body.headings if h.level == 1 and h.text), "")
    title = _one_line(front_matter_title(body.front_matter)) or first_heading
    return ParsedDocument(
        title=title or PurePosixPath(path).name,
        summary=body.summary,
        front_matter=body.front_matter,
        sections=_build_sections(body.headings, lines, title),
        blocks=tuple(body.blocks),
        total_lines=len(lines),
        notices=body.notices,
        links=body.links,
    )


# Sections


def _build_sections(
    headings: Sequence[_Heading], lines: Sequence[str], title: str
) -> tuple[Section, ...]:
    title_position = next(
        (i for i, h in enumerate(headings) if h.level == 1 and h.text and h.text == title), None
    )
    ends = _section_ends(headings, len(lines))
    sections: list[Section] = []
    for position, heading in enumerate(headings):
        parent = position - 1 if position else None
        while parent is not None and sections[parent].level >= heading.level:
            parent = sections[parent].parent
        above = "" if parent in (None, title_position) else sections[parent or 0].heading_path
        following = headings[position + 1].start_line if position + 1 < len(headings) else 0
        body_end = following - 1 if following else len(lines)
        sections.append(
            Section(
                position=position,
                level=heading.level,
                heading=heading.text,
                heading_path=PATH_SEPARATOR.join(filter(None, (above, heading.text))),
                parent=parent,
                start_line=heading.start_line,
                end_line=_last_text_line(lines, heading.end_line, ends[position]),
                body_end_line=_last_text_line(lines, heading.end_line, body_end),
            )
        )
    return tuple(sections)


def _section_ends(headings: Sequence[_Heading], total_lines: int) -> list[int]:
    """Return for each heading the line before the next one of its level or above."""
    ends = [total_lines] * len(headings)
    open_positions: list[int] = []
    for position, heading in enumerate(headings):
        while open_positions and headings[open_positions[-1]].level >= heading.level:
            ends[open_positions.pop()] = heading.start_line - 1
        open_positions.append(position)
    return ends


def _last_text_line(lines: Sequence[str], first: int, last: int) -> int:
    """Return the last line from `last` back to `first` that is not blank, else `first`."""
    while last > first and not lines[last - 1].strip():
        last -= 1
    return last


# Markdown


# Block rules only: 2 to 4 times faster than the full parser, same outline. The inline text of a
# heading or paragraph is still in its "inline" token; the few that are shown are parsed apart.
# The core rule "normalize" is off too, since "\r" would become a line end there.
# Made, and its library imported, at the first document: searches and server starts need neither.
@cache
def _markdown() -> MarkdownIt:
    from kb.formats.links import KeepingLinks

    parser = KeepingLinks("commonmark").enable(["table", "strikethrough"])
    parser.core.ruler.enableOnly(["block"])
    return parser


_BLOCK_KINDS = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "list_item_open": "list_item",
    "fence": "fence",
    "code_block": "code",
    "table_open": "table",
    "blockquote_open": "quote",
    "html_block": "html",
    "hr": "rule",
}

_ATTRIBUTE = r"""(?:[#.][^\s{}]+ | [\w-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+))"""
_ATTRIBUTE_BLOCK = re.compile(rf"\{{:?\s*{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\s*\}}", re.VERBOSE)
_MARKUP = re.compile(r"[\\`*_~\[\]<>&!\n]")

# Openings of paragraphs that are instructions to a site generator, not prose: admonitions,
# includes, templates, and in MDX imports and exports.
_NO_PROSE = re.compile(r"///|:::|!!!|\?\?\?|\{[%{*]|\[TOC\]|import\s.+['\"];?$|export\s+\w+\s")


def _read_markdown(text: str, lines: Sequence[str]) -> _Body:
    front = read_front_matter(text)
    references: dict[str, Any] = {}
    tokens = _markdown().parse(text[front.character_count :], references)
    headings: list[_Heading] = []
    found: list[Block] = []
    if front.line_count:
        found.append(Block(1, front.line_count, "front_matter"))
    summary = ""
    for index, token in enumerate(tokens):
        # The items of a top-level list are blocks of their own; they sit one level down.
        if token.level != (1 if token.type == "list_item_open" else 0) or token.map is None:
            continue
        kind = _BLOCK_KINDS.get(token.type)
        if kind is None:
            continue
        start, end = token.map[0] + front.line_count + 1, token.map[1] + front.line_count
        found.append(Block(start, end, kind))
        if kind == "heading":
            heading = _heading_text(tokens[index + 1].content, references)
            headings.append(_Heading(int(token.tag[1]), heading, start, end))
        elif kind == "paragraph" and not summary:
            summary = _prose(_plain_text(tokens[index + 1].content, references, images=False))
    notices = (front.notice,) if front.notice else ()
    from kb.formats.links import find_links

    links = find_links(tokens, references, front.values, lines, front.line_count)
    return _Body(headings, _without_gaps(found, lines), summary, front.values, notices, links)


def _without_gaps(found: Iterable[Block], lines: Sequence[str]) -> list[Block]:
    """Trim blocks to their text and add the lines that gave no token: link definitions."""
    blocks: list[Block] = []
    covered = 0

    def add(start: int, end: int, kind: str) -> None:
        while start <= end and not lines[start - 1].strip():
            start += 1
        if start <= end:
            blocks.append(Block(start, _last_text_line(lines, start, end), kind))

    for block in found:
        add(covered + 1, block.start_line - 1, "reference")
        add(max(covered + 1, block.start_line), min(block.end_line, len(lines)), block.kind)
        covered = max(covered, block.end_line)
    add(covered + 1, len(lines), "reference")
    return blocks


def _heading_text(source: str, references: dict[str, Any]) -> str:
    source = source.rstrip()
    start = source.rfind("{")
    if source.endswith("}") and _ATTRIBUTE_BLOCK.fullmatch(source, start):
        source = source[:start]
    return _one_line(_plain_text(source[:MAXIMUM_HEADING], references, images=True))


def _plain_text(source: str, references: dict[str, Any], *, images: bool) -> str:
    """Remove Markdown's inline markup; an image leaves its alternative text, if wanted."""
    # Inline parsing of hostile input can be quadratic; no caller shows more than this.
    source = source[:MAXIMUM_SOURCE]
    if not _MARKUP.search(source):
        return source
    tokens: list[Token] = []
    _markdown().inline.parse(source, _markdown(), references, tokens)
    return "".join(_token_text(token, images) for token in tokens)


def _token_text(token: Token, images: bool) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type == "image":
        return "".join(_token_text(t, images) for t in token.children or ()) if images else ""
    return "" if token.type == "html_inline" else token.content


# reStructuredText and plain text


def _read_restructured_text(text: str, lines: Sequence[str]) -> _Body:
    # Only files of this format pay for importing docutils (.03 s).
    from kb.formats.restructured_text import (
        RestructuredTextError,
        plain_text,
        read_blocks,
        read_titles,
    )

    try:
        titles = read_titles(text)
    except RestructuredTextError as error:
        plain = _read_plain_text(lines)
        notice = f"The file could not be read as reStructuredText, so it has no headings: {error}."
        return _Body((), plain.blocks, plain.summary, {}, (notice,))
    headings = [
        _Heading(min(t.level, 6), _one_line(t.text[:MAXIMUM_HEADING]), t.start_line, t.end_line)
        for t in titles
    ]
    blocks = [Block(*block) for block in read_blocks(lines, titles)]
    return _Body(headings, blocks, _first_prose(blocks, lines, plain_text), {})


def _read_plain_text(lines: Sequence[str]) -> _Body:
    blocks: list[Block] = []
    start = 0
    for number, line in enumerate((*lines, ""), start=1):
        if line.strip():
            start = start or number
        elif start:
            blocks.append(Block(start, number - 1, "paragraph"))
            start = 0
    return _Body((), blocks, _first_prose(blocks, lines, str), {})


# Text that is shown


def _first_prose(
    blocks: Iterable[Block], lines: Sequence[str], plain_text: Callable[[str], str]
) -> str:
    for block in blocks:
        if block.kind == "paragraph":
            source = "\n".join(lines[block.start_line - 1 : block.end_line])
            if prose := _prose(plain_text(source[:MAXIMUM_SOURCE])):
                return prose
    return ""


def _prose(text: str) -> str:
    """Return `text` cut for a summary, "" when it holds no words to read."""
    text = _one_line(text)
    if _NO_PROSE.match(text) or not any(map(str.isalpha, text)):
        return ""
    if len(text) > MAXIMUM_SUMMARY:
        # Languages without spaces, and very long words, are cut where they are.
        cut = text.rfind(" ", MAXIMUM_SUMMARY // 2, MAXIMUM_SUMMARY + 1)
        text = text[: cut if cut > 0 else MAXIMUM_SUMMARY]
    return text


def _one_line(text: str) -> str:
    # SQLite's own tools end a text at NUL; Markdown shows U+FFFD for it.
    return " ".join(text.replace("\0", "\ufffd").split())
