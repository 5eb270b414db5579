"""A Markdown text -> headings, blocks, links and front matter, by markdown-it-py.

Links are looked for in its blocks, and in more: what stands indented behind a footnote, a
definition or an admonition is code to CommonMark, and one more paragraph to whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.token import Token

from kb.formats.front_matter import NO_FRONT_MATTER, read_front_matter
from kb.formats.links import KeepingLinks, LinkText, find_links, may_hold_link
from kb.formats.metadata import inline_tags
from kb.formats.outline import (
    MAXIMUM_HEADING,
    MAXIMUM_SOURCE,
    Block,
    Body,
    Heading,
    cover,
    find_definitions,
    one_line,
    prose,
)
from kb.formats.restructured_links import glossary_terms, normal_name, toctree_links
from kb.text.headings import TERM_MARK

# What begins a construct whose later paragraphs are indented.
_CONTINUED = re.compile(
    r"\[\^(?P<label>[^\]\s]+)\]:|:[ \t]|(?:[^\n]+\n){1,6}:[ \t]|!!!|\?\?\?|===[ \t]|///|~[ \t]"
)
_HTML_WITHOUT_LINKS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<tag>script|style|pre|code)\b.*?(?:</(?P=tag)\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
MOST_DEPTH = 8


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The rule for tables: the parser's own took 7 s and 650 MB for ten tables of 500 columns."""
    if not table(state, start, end, True):
        return False
    if silent:
        return True
    ends = state.md.block.ruler.getRules("blockquote")
    outside, state.parentType = state.parentType, "table"
    opened = state.push("table_open", "table", 1)
    columns = len(_cells(escapedSplit(getLine(state, start).strip())))
    line = start
    while line < end:
        # Behind the head and the line below it, whatever interrupts a quote ends a table.
        if line > start + 1 and (
            state.sCount[line] < state.blkIndent
            or state.isEmpty(line)
            or state.is_code_block(line)
            or any(rule(state, line, end, True) for rule in ends)
        ):
            break
        source = getLine(state, line)
        if may_hold_link(source):
            for cell in _cells(escapedSplit(source.strip()))[:columns]:
                token = state.push("inline", "", 0)
                token.map, token.content = [line, line + 1], cell.strip()
        line += 1
    state.push("table_close", "table", -1)
    opened.map = [start, line]
    state.parentType, state.line = outside, line
    return True


def _cells(parts: list[str]) -> list[str]:
    """A row's cells, without the empty ones outside its bars."""
    first = 1 if parts and not parts[0] else 0
    last = len(parts) - 1 if len(parts) > first and not parts[-1] else len(parts)
    return parts[first:last]


# Block rules only: 2 to 4 times faster, same outline. Inline text that is shown is parsed apart.
# "normalize" is off since it would make "\r" a line end.
PARSER = KeepingLinks("commonmark").enable(["strikethrough", "table"])
PARSER.core.ruler.enableOnly(["block"])
PARSER.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})


@dataclass(slots=True)
class LinkTexts:
    """Gathers the texts from the block rules' tokens, in order."""

    links: list[LinkText] = field(default_factory=list)
    depth: int = 0  # of indented texts in each other, each of which is parsed for itself
    _opening: re.Match[str] | None = None  # of the construct that an indented block would go on

    def add(self, tokens: Sequence[Token]) -> list[LinkText]:
        line = 0
        for token in tokens:
            line = token.map[0] if token.map is not None else line
            self.take(token, line)
        return self.links

    def take(self, token: Token, line: int) -> None:
        if token.type == "inline":
            if token.level == 1:
                self._opening = _CONTINUED.match(token.content)
            self._keep(token.content, line, None)
        elif token.type == "html_block":
            shown = _HTML_WITHOUT_LINKS.sub(lambda m: "\n" * m[0].count("\n"), token.content)
            self._keep(shown, line, None)
            self._opening = None
        elif token.type == "code_block" and self._opening is not None and not token.level:
            if self.depth < MOST_DEPTH:
                inside = LinkTexts(depth=self.depth + 1).add(PARSER.parse(token.content))
                for content, offset, _ in inside:
                    self._keep(content, line + offset, self._opening["label"])
        elif not token.level and token.nesting >= 0 and token.type != "paragraph_open":
            self._opening = None

    def _keep(self, content: str, line: int, label: str | None) -> None:
        if may_hold_link(content):
            self.links.append((content, line, label))


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
    toctrees = _directives(lines, "toctree") if "{toctree}" in text else ()
    entries = [link for start, end in toctrees for link in toctree_links(lines, start, end)]
    links = sorted((*body.links, *entries), key=lambda link: link.line)
    return replace(
        body,
        front_matter=body.front_matter or page_properties(lines, path),
        links=tuple(links),
        # Logseq's ids of blocks, by which other pages refer to them.
        labels=(*(_BLOCK_ID.findall(text) if "id:: " in text else ()), *myst_labels(text, lines)),
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


# What MyST adds: tables of contents, glossaries, labels of the whole project


_LABEL = re.compile(
    r"^[ \t]*(?:\((?P<target>[^()\s]+)\)=|:(?:name|label):[ \t]+(?P<name>\S+(?:[ \t]\S+)*)"
    r"|[:`]{3,}\{figure-md\}[ \t]+(?P<figure>\S+))[ \t]*$",
    re.MULTILINE,
)
_LABELLED = re.compile(r"\{[^{}\n]*?#([\w/.:-]+)[^{}\n]*\}")
_MYST_TERM = re.compile(r"^(\S.*)\n+:[ \t]", re.MULTILINE)
_MYST_FENCE = re.compile(r"(?P<fence>`{3,}|:{3,}(?=\s*\{)|~{3,})\s*(?:\{(?P<name>[\w:-]+)\})?")


def myst_labels(text: str, lines: Sequence[str]) -> Iterator[str]:
    """The labels of a page: those before headings, names of directives, terms of glossaries."""
    if any(mark in text for mark in (")=", ":name:", ":label:", "{figure-md}")):
        for match in _LABEL.finditer(text):
            yield (match["target"] or match["name"] or match["figure"]).casefold()
    if "{#" in text and "{ref}`" in text:
        yield from (match[1].casefold() for match in _LABELLED.finditer(text))
    if "{.glossary" in text:
        terms = _MYST_TERM.finditer(text, text.index("{.glossary"))
        yield from (TERM_MARK + normal_name(match[1]) for match in terms)
    if "{glossary}" in text:
        for start, end in _directives(lines, "glossary"):
            yield from glossary_terms(lines[start:end])


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
