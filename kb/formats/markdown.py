"""A Markdown text -> headings, blocks, links and front matter, by markdown-it-py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from markdown_it.token import Token

from kb.formats.definitions import find_definitions
from kb.formats.front_matter import NO_FRONT_MATTER, read_front_matter
from kb.formats.links import find_links
from kb.formats.markdown_blocks import PARSER, LinkTexts
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
from kb.formats.restructured_links import glossary_terms, normal_name, toctree_links
from kb.formats.tags import inline_tags
from kb.text.headings import TERM_MARK

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

# Long texts are parsed in windows of this size: a token takes .3 kB, and a line may give eighty.
WINDOW_CHARACTERS = 200_000
# A block that fills even this is cut, but for those of one token, however long they are.
LARGEST_WINDOW = 2 * WINDOW_CHARACTERS
_LEAVES = frozenset({"paragraph_open", "heading_open", "fence", "code_block", "html_block"})

_ATTRIBUTE = r"""(?:[#.][^\s{}]+ | [\w-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+))"""
_ATTRIBUTE_BLOCK = re.compile(rf"\{{:?\s*{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\s*\}}", re.VERBOSE)
_MARKUP = re.compile(r"[\\`*_~\[\]<>&!\n]")


def read(text: str, lines: Sequence[str], path: str) -> Body:
    """Read a whole file with what Logseq and MyST add; `lines` are its lines."""
    body = read_markdown(text, lines)
    links = sorted((*body.links, *myst_toctrees(text, lines)), key=lambda link: link.line)
    return replace(
        body,
        front_matter=body.front_matter or page_properties(lines, path),
        links=tuple(links),
        labels=(*block_ids(text), *myst_labels(text, lines)),
    )


def read_markdown(text: str, lines: Sequence[str], *, has_front_matter: bool = True) -> Body:
    front = read_front_matter(text) if has_front_matter else NO_FRONT_MATTER
    references: dict[str, Any] = {}
    reader = _Found(front.line_count, references)
    if front.line_count:
        reader.blocks.append(Block(1, front.line_count, "front_matter"))
    for tokens, line in _windows(text[front.character_count :], references):
        reader.add(tokens, line)
    # Only now are all link definitions known, of which some stand at the very end.
    headings = [
        Heading(level, plain_heading(source, references), block.start_line, block.end_line)
        for block, level, source in reader.headings
    ]
    summary = prose(_plain_text(reader.paragraph, references, images=False))
    notices = (front.notice,) if front.notice else ()
    links = find_links(reader.texts.links, references, front.values, lines, front.line_count)
    blocks = cover(reader.blocks, lines)
    terms = find_definitions(blocks, lines, lambda source: plain_heading(source, references))
    parts = headings, blocks, summary, front.values, notices, links
    return Body(*parts, tags=tuple(reader.tags), definitions=tuple(terms))


@dataclass(slots=True)
class _Found:
    """What the block rules have collected; lines of blocks count from 1, in the file."""

    first_line: int  # lines of the front matter
    references: dict[str, Any]  # the link definitions that are known so far
    blocks: list[Block] = field(default_factory=list)
    headings: list[tuple[Block, int, str]] = field(default_factory=list)  # level and source
    texts: LinkTexts = field(default_factory=LinkTexts)  # for `find_links`
    paragraph: str = ""  # the source of the first one with words to read
    tags: dict[str, None] = field(default_factory=dict)  # in order

    def add(self, tokens: Sequence[Token], line: int) -> None:
        """Take blocks whose lines count from `line` of the text behind the front matter."""
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
            block = Block(at + 1 + self.first_line, line + token.map[1] + self.first_line, kind)
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
        tokens = PARSER.parse(text[start:end], references)
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
    """Where the last top-level block, or the last item of a list at the end, begins."""
    for index in range(len(tokens) - 1, 0, -1):
        token = tokens[index]
        opens = token.nesting >= 0 and token.map is not None
        if opens and (token.level == 0 or (token.level == 1 and token.type == "list_item_open")):
            return index
    return 0


def plain_heading(source: str, references: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The text that a heading shows, without markup, links and attributes."""
    source = source.rstrip()
    start = source.rfind("{")
    if source.endswith("}") and _ATTRIBUTE_BLOCK.fullmatch(source, start):
        source = source[:start]
    return one_line(_plain_text(source[:MAXIMUM_HEADING], references, images=True))


def _plain_text(source: str, references: Mapping[str, Any], *, images: bool) -> str:
    """Remove inline markup; images leave their alternative text if wanted."""
    # Inline parsing of hostile input can be quadratic; no caller shows more than this.
    source = source[:MAXIMUM_SOURCE]
    if not _MARKUP.search(source):
        return source
    tokens: list[Token] = []
    PARSER.inline.parse(source, PARSER, dict(references), tokens)
    return "".join(_token_text(token, images) for token in tokens)


def _token_text(token: Token, images: bool) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type == "image":
        return "".join(_token_text(t, images) for t in token.children or ()) if images else ""
    return "" if token.type == "html_inline" else token.content


# What Logseq writes into Markdown: properties of a page in its first lines, ids of blocks


FOLDERS = frozenset({"pages", "journals"})
_PROPERTY = re.compile(r"(?P<name>title|alias|tags)::[ \t]+(?P<value>.*\S)", re.IGNORECASE)
_ANY_PROPERTY = re.compile(r"[\w-]+::(?:[ \t]|\Z)")
_BLOCK_ID = re.compile(r"^\s*id:: ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.MULTILINE)


def page_properties(lines: Sequence[str], path: str) -> dict[str, str]:
    """Title, alias and tags of a page in a graph's own folders; elsewhere such lines are text."""
    properties: dict[str, str] = {}
    if PurePosixPath(path).parent.name not in FOLDERS:
        return properties
    for line in lines:
        if not _ANY_PROPERTY.match(line):
            break
        if property_ := _PROPERTY.match(line):
            properties[property_["name"].lower()] = property_["value"].strip()
    return properties


def block_ids(text: str) -> tuple[str, ...]:
    """The ids by which other pages refer to blocks."""
    return tuple(_BLOCK_ID.findall(text)) if "id:: " in text else ()


# What MyST adds: tables of contents, glossaries, labels of the whole project


_LABEL = re.compile(
    r"^[ \t]*(?:\(([^()\s]+)\)=|:(?:name|label):[ \t]+(\S+(?:[ \t]\S+)*))[ \t]*$", re.MULTILINE
)
_LABELLED = re.compile(r"\{[^{}\n]*?#([\w/.:-]+)[^{}\n]*\}")
_MYST_TERM = re.compile(r"^(\S.*)\n+:[ \t]", re.MULTILINE)
_MYST_FENCE = re.compile(r"(?P<fence>`{3,}|:{3,}(?=\s*\{)|~{3,})\s*(?:\{(?P<name>[\w:-]+)\})?")


def myst_labels(text: str, lines: Sequence[str]) -> Iterator[str]:
    """The labels of a page: those before headings, names of directives, terms of glossaries."""
    if ")=" in text or ":name:" in text or ":label:" in text:
        for match in _LABEL.finditer(text):
            yield (match[1] or match[2]).casefold()
    if "{#" in text and "{ref}`" in text:
        yield from (match[1].casefold() for match in _LABELLED.finditer(text))
    if "{.glossary" in text:
        terms = _MYST_TERM.finditer(text, text.index("{.glossary"))
        yield from (TERM_MARK + normal_name(match[1]) for match in terms)
    if "{glossary}" in text:
        for start, end in _directives(lines, "glossary"):
            yield from glossary_terms(lines[start:end])


def myst_toctrees(text: str, lines: Sequence[str]) -> Iterator[Link]:
    if "{toctree}" in text:
        for start, end in _directives(lines, "toctree"):
            yield from toctree_links(lines, start, end)


def _directives(lines: Sequence[str], name: str) -> Iterator[tuple[int, int]]:
    """The first line (from 0) of each directive's content, and the one behind its last."""
    around: list[str] = []  # fences of other directives, whose content is text
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        fence = _MYST_FENCE.match(line)
        number += 1
        if around and line == around[-1]:
            around.pop()
        elif fence is not None and fence["name"] not in (None, name):
            around.append(fence["fence"])
        elif fence is not None:
            start = number
            while number < len(lines) and not lines[number].strip().startswith(fence["fence"]):
                number += 1
            if fence["name"]:
                yield start, number
            number += 1
