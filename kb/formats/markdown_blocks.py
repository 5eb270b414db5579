"""markdown-it-py's block rules, of which a line meets only those that its first character may open.

The parser asks nine rules about every line, three times over for the lines of a paragraph. Most
lines begin with a letter and can open nothing; every other first character belongs to two rules at
most. The rules themselves are the parser's own, but for tables and for plain paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from markdown_it.common.utils import mdTrim
from markdown_it.parser_block import ParserBlock, RuleFuncBlockType
from markdown_it.ruler import Ruler
from markdown_it.rules_block import (
    StateBlock,
    blockquote,
    code,
    fence,
    heading,
    hr,
    html_block,
    lheading,
    list_block,
    paragraph,
    reference,
    table,
)
from markdown_it.rules_block.table import escapedSplit, getLine

from kb.formats.links import may_hold_link

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

__all__ = ["BlocksByFirstCharacter"]

_Rules = Mapping[str, tuple[RuleFuncBlockType, ...]]

# By the character that a line begins with, in the parser's order of rules.
_IN_LISTS: _Rules = {
    "`": (fence,),
    "~": (fence,),
    ">": (blockquote,),
    "*": (hr,),
    "-": (hr,),
    "_": (hr,),
}
_IN_QUOTES: _Rules = {
    **_IN_LISTS,
    "*": (hr, list_block),
    "-": (hr, list_block),
    "+": (list_block,),
    **dict.fromkeys("0123456789", (list_block,)),
    "<": (html_block,),
    "#": (heading,),
}
_ANYWHERE: _Rules = {**_IN_QUOTES, "[": (reference,)}
# What the line below a table's head begins with.
_BELOW_HEAD = "|-:"
# Where a line may end a paragraph, or make a heading or a table of it.
_STOPS = frozenset({*_IN_QUOTES, *_BELOW_HEAD, "="})


class BlocksByFirstCharacter(ParserBlock):
    """As the parser's own, with all its rules of CommonMark and tables."""

    def __init__(self) -> None:
        self.ruler = Ruler[RuleFuncBlockType]()
        # The first takes every line; the others are only asked what ends a block.
        self.ruler.push("block", _block, {"alt": []})
        self.ruler.push("end", _ends_paragraph, {"alt": ["paragraph", "reference"]})
        self.ruler.push("end_of_quote", _ends_quote, {"alt": ["blockquote"]})
        self.ruler.push("end_of_item", _ends_item, {"alt": ["list"]})

    def parse(
        self,
        src: str,
        md: MarkdownIt,
        env: EnvType,
        outTokens: list[Token],  # noqa: N803 - markdown-it's name
    ) -> list[Token] | None:
        """As the parser's own."""
        if not src:
            return None
        state = _State(src, md, env, outTokens)
        self.tokenize(state, state.line, state.lineMax)
        return state.tokens


class _State(StateBlock):
    """The parser's, with the marks of lines set by lines, not by characters."""

    def __init__(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> None:
        super().__init__("", md, env, tokens)
        self.src = src
        lines = src.split("\n")
        if not lines[-1].strip(" \t"):
            lines.pop()  # as the parser's own does
        shifts = [len(line) - len(line.lstrip(" \t")) for line in lines]
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]
        # One more of each: the rules look at the line behind the last.
        self.bMarks = [*starts, len(src)]
        self.eMarks = [*(at + len(line) for at, line in zip(starts, lines, strict=True)), len(src)]
        self.tShift = [*shifts, 0]
        self.sCount = self.tShift.copy()
        if "\t" in src:
            for number, (line, shift) in enumerate(zip(lines, shifts, strict=True)):
                if shift:
                    self.sCount[number] = len(line[:shift].expandtabs(4))
        self.bsCount = [0] * len(self.bMarks)
        self.lineMax = len(lines)

    def is_code_block(self, line: int) -> bool:
        """Whether a line is indented as code is; the rule for it is always on."""
        return self.sCount[line] - self.blkIndent >= 4


def _first(state: StateBlock, line: int) -> str:
    """The first character of a line that is no space; "" at the end."""
    position = state.bMarks[line] + state.tShift[line]
    return state.src[position : position + 1]


def _block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read the block that begins at a line."""
    if _begins_table(state, line, end) and _table(state, line, end, silent):
        return True
    if code(state, line, end, silent):
        return True
    for rule in _ANYWHERE.get(_first(state, line), ()):
        if rule(state, line, end, silent):
            return True
    return _prose(state, line, end)


def _ends_paragraph(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    is_table = _begins_table(state, line, end) and _table(state, line, end, silent)
    return is_table or _ends_quote(state, line, end, silent)


def _ends_quote(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    rules = _IN_QUOTES.get(_first(state, line), ())
    return any(rule(state, line, end, silent) for rule in rules)


def _ends_item(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    rules = _IN_LISTS.get(_first(state, line), ())
    return any(rule(state, line, end, silent) for rule in rules)


def _prose(state: StateBlock, line: int, end: int) -> bool:
    """Read a paragraph, or the heading that a line of `=` or `-` below it makes of it."""
    if end != state.lineMax:  # in a quote the two end at different lines
        return lheading(state, line, end, False) or paragraph(state, line, end, False)
    outside, state.parentType = state.parentType, "paragraph"
    source, indent = state.src, state.blkIndent
    begins, shifts, ends, counts = state.bMarks, state.tShift, state.eMarks, state.sCount
    at = line + 1
    mark = ""
    while at < end:
        position = begins[at] + shifts[at]
        if position >= ends[at]:
            break
        first, count = source[position], counts[at]
        # Indented more, it goes on with the paragraph, whatever it is.
        if first in _STOPS and count - indent < 4:
            if first in _BELOW_HEAD and at > line + 1 and _is_head(state, at - 1, end):
                at -= 1
                break
            if first in "-=" and count >= indent:
                underline = source[position : ends[at]].rstrip(" \t")
                if not underline.strip(first):
                    mark = first
                    break
            # Below 0 are lines that a quote takes without its mark.
            if count >= 0 and _ends_quote(state, at, end, True):
                break
        at += 1
    content = mdTrim(state.getLines(line, at, indent, False))
    state.parentType = outside
    state.line = at + 1 if mark else at
    tag, kind = "p", "paragraph"
    if mark:
        tag, kind = "h1" if mark == "=" else "h2", "heading"
    opened = state.push(f"{kind}_open", tag, 1)
    opened.markup, opened.map = mark, [line, state.line]
    text = state.push("inline", "", 0)
    text.content, text.map, text.children = content, [line, at], []
    state.push(f"{kind}_close", tag, -1).markup = mark
    return True


def _is_head(state: StateBlock, line: int, end: int) -> bool:
    """Whether a paragraph's line is the head of a table that ends it."""
    is_continued = state.sCount[line] - state.blkIndent > 3 or state.sCount[line] < 0
    return not is_continued and _table(state, line, end, True)


def _begins_table(state: StateBlock, line: int, end: int) -> bool:
    """Whether the line below can be that between a table's head and its body."""
    return line + 1 < end and (_first(state, line + 1) or " ") in _BELOW_HEAD


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The rule for tables, in place of the parser's own, which makes three tokens of each cell.

    It fills short rows up, too: ten tables of 500 columns, 22 kB of text, took 7 s and 650 MB.
    Here a table is its lines, and the cells that may hold a link.
    """
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
    """A row's cells; the bars at both ends are no cells of their own."""
    first = 1 if parts and not parts[0] else 0
    last = len(parts) - 1 if len(parts) > first and not parts[-1] else len(parts)
    return parts[first:last]
