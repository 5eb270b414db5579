"""The block tokens of a Markdown document, and the texts in it in which links are looked for.

These are those of its blocks, and more: what stands indented behind a footnote, a definition or an
admonition is code to CommonMark, and one more paragraph to whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.token import Token

from kb.formats.hidden_text import LinkText, may_hold_link
from kb.formats.links import KeepingLinks

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
