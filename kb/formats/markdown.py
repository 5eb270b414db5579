"""A Markdown text -> headings, blocks, links and front matter, by markdown-it-py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kb.formats.front_matter import NO_FRONT_MATTER, read_front_matter
from kb.formats.outline import (
    MAXIMUM_HEADING,
    MAXIMUM_SOURCE,
    Block,
    Body,
    Heading,
    last_text_line,
    one_line,
    prose,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["read_markdown"]


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


def read_markdown(text: str, lines: Sequence[str], *, has_front_matter: bool = True) -> Body:
    """Read a whole file; `lines` are its lines."""
    front = read_front_matter(text) if has_front_matter else NO_FRONT_MATTER
    references: dict[str, Any] = {}
    tokens = _markdown().parse(text[front.character_count :], references)
    headings: list[Heading] = []
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
            headings.append(Heading(int(token.tag[1]), heading, start, end))
        elif kind == "paragraph" and not summary:
            summary = prose(_plain_text(tokens[index + 1].content, references, images=False))
    notices = (front.notice,) if front.notice else ()
    from kb.formats.links import find_links

    links = find_links(tokens, references, front.values, lines, front.line_count)
    return Body(headings, _without_gaps(found, lines), summary, front.values, notices, links)


def _without_gaps(found: Iterable[Block], lines: Sequence[str]) -> list[Block]:
    """Trim blocks to their text and add the lines that gave no token: link definitions."""
    blocks: list[Block] = []
    covered = 0

    def add(start: int, end: int, kind: str) -> None:
        while start <= end and not lines[start - 1].strip():
            start += 1
        if start <= end:
            blocks.append(Block(start, last_text_line(lines, start, end), kind))

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
    return one_line(_plain_text(source[:MAXIMUM_HEADING], references, images=True))


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
