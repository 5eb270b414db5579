"""A Markdown text -> headings, blocks, links and front matter, by markdown-it-py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from kb.formats.tags import inline_tags

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from kb.formats.link_texts import LinkTexts

__all__ = ["plain_heading", "read_markdown"]


# Block rules only: 2 to 4 times faster than the full parser, same outline. The inline text of a
# heading or paragraph is still in its "inline" token; the few that are shown are parsed apart.
# The core rule "normalize" is off too, since "\r" would become a line end there.
# Made, and its library imported, at the first document: searches and server starts need neither.
@cache
def _markdown() -> MarkdownIt:
    from kb.formats.links import KeepingLinks
    from kb.formats.markdown_blocks import BlocksByFirstCharacter

    parser = KeepingLinks("commonmark").enable("strikethrough")
    parser.core.ruler.enableOnly(["block"])
    parser.block = BlocksByFirstCharacter()
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

# A token takes a third of a kB, and a line of text may give eighty of them: a long text is parsed
# in windows of about so many characters.
WINDOW_CHARACTERS = 200_000
# A block that fills even this is cut, but for those of one token, however long they are.
LARGEST_WINDOW = 2 * WINDOW_CHARACTERS
_LEAVES = frozenset({"paragraph_open", "heading_open", "fence", "code_block", "html_block"})

_ATTRIBUTE = r"""(?:[#.][^\s{}]+ | [\w-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+))"""
_ATTRIBUTE_BLOCK = re.compile(rf"\{{:?\s*{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\s*\}}", re.VERBOSE)
_MARKUP = re.compile(r"[\\`*_~\[\]<>&!\n]")


def read_markdown(text: str, lines: Sequence[str], *, has_front_matter: bool = True) -> Body:
    """Read a whole file; `lines` are its lines."""
    from kb.formats.links import find_links

    front = read_front_matter(text) if has_front_matter else NO_FRONT_MATTER
    references: dict[str, Any] = {}
    found = _Found(front.line_count, references)
    if front.line_count:
        found.blocks.append(Block(1, front.line_count, "front_matter"))
    for tokens, line in _windows(text[front.character_count :], references):
        found.add(tokens, line)
    # Only now are all link definitions known, of which some stand at the very end.
    headings = [
        Heading(level, _heading_text(source, references), block.start_line, block.end_line)
        for block, level, source in found.headings
    ]
    summary = prose(_plain_text(found.paragraph, references, images=False))
    notices = (front.notice,) if front.notice else ()
    links = find_links(found.texts.found, references, front.values, lines, front.line_count)
    blocks = _without_gaps(found.blocks, lines)
    return Body(headings, blocks, summary, front.values, notices, links, tags=tuple(found.tags))


def _link_texts() -> LinkTexts:
    from kb.formats.link_texts import LinkTexts

    return LinkTexts()


@dataclass(slots=True)
class _Found:
    """What the block rules found so far; lines of blocks count from 1, in the file."""

    first_line: int  # lines of the front matter
    references: dict[str, Any]  # the link definitions that are known so far
    blocks: list[Block] = field(default_factory=list)
    headings: list[tuple[Block, int, str]] = field(default_factory=list)  # level and source
    paragraph: str = ""  # the source of the first one with words to read
    texts: LinkTexts = field(default_factory=_link_texts)  # for `find_links`
    tags: dict[str, None] = field(default_factory=dict)  # in order

    def add(self, tokens: Sequence[Token], line: int) -> None:
        """Take up blocks whose lines count from `line` of the text behind the front matter."""
        at = line
        for index, token in enumerate(tokens):
            if token.map is not None:
                at = line + token.map[0]
            self.texts.take(token, at)
            if token.type == "inline":
                self.tags |= dict.fromkeys(inline_tags(token.content))
            # The items of a top-level list are blocks of their own; they sit one level down.
            if token.level != (1 if token.type == "list_item_open" else 0) or token.map is None:
                continue
            kind = _BLOCK_KINDS.get(token.type)
            if kind is None:
                continue
            end = line + token.map[1] + self.first_line
            block = Block(at + 1 + self.first_line, end, kind)
            self.blocks.append(block)
            if kind == "heading":
                self.headings.append((block, int(token.tag[1]), tokens[index + 1].content))
            elif kind == "paragraph" and not self.paragraph:
                source = tokens[index + 1].content[:MAXIMUM_SOURCE]
                if prose(_plain_text(source, self.references, images=False)):
                    self.paragraph = source


def _windows(text: str, references: dict[str, Any]) -> Iterator[tuple[list[Token], int]]:
    """The tokens of a text, window by window, each with the line, from 0, at which it begins.

    A block depends on nothing in front of it but link definitions, which `references` collects.
    So each window ends before the last block that began in it, or before the last item of a
    list, and the next one begins there. A block that fills a window is given a larger one.
    """
    start = line = 0
    size = WINDOW_CHARACTERS
    while start < len(text):
        end = text.find("\n", start + size) + 1 or len(text)
        tokens = _markdown().parse(text[start:end], references)
        references.pop("duplicate_refs", None)  # of no use, and as many as there are
        if end == len(text):
            yield tokens, line
            return
        index = _last_block(tokens)
        cut = (tokens[index].map or [0])[0] if index else 0
        if not tokens and (blank := text.rfind("\n\n", start, end)) >= 0:
            # Nothing but definitions and blank lines, and no definition goes on behind one.
            cut = text.count("\n", start, blank + 2)
        if not cut:
            if not tokens or tokens[0].type in _LEAVES:
                size *= 4
                continue
            if size < LARGEST_WINDOW:
                size = LARGEST_WINDOW
                continue
            # A list of one item, a quote or a table goes on as if it began anew.
            index, cut = len(tokens), text.count("\n", start, end)
        del tokens[index:]
        yield tokens, line
        for _ in range(cut):
            start = text.find("\n", start) + 1
        line += cut
        size = WINDOW_CHARACTERS


def _last_block(tokens: Sequence[Token]) -> int:
    """Where the last top-level block begins, or the last item of a list that is the last."""
    for index in range(len(tokens) - 1, 0, -1):
        token = tokens[index]
        opens = token.nesting >= 0 and token.map is not None
        if opens and (token.level == 0 or (token.level == 1 and token.type == "list_item_open")):
            return index
    return 0


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


def plain_heading(source: str) -> str:
    """A heading as it is written, with markup, links and attributes, as the text that it shows."""
    return _heading_text(source, {})


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
