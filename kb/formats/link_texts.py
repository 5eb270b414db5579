"""The texts of a Markdown document in which links are looked for.

They are those of its blocks, and more: what stands indented behind a footnote, a definition or an
admonition is code to CommonMark, and one more paragraph to whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from markdown_it.token import Token

from kb.formats.links import KeepingLinks, may_hold_link

__all__ = ["LinkText", "LinkTexts"]

# A text, its first line from 0, and the label of the footnote that all of it belongs to, if any.
LinkText = tuple[str, int, str | None]

# What begins a construct whose later paragraphs are indented.
_CONTINUED = re.compile(
    r"\[\^(?P<label>[^\]\s]+)\]:|:[ \t]|[^\n]*\n:[ \t]|!!!|\?\?\?|===[ \t]|///|~[ \t]"
)
_HTML_WITHOUT_LINKS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<tag>script|style|pre|code)\b.*?(?:</(?P=tag)\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_BLOCKS = KeepingLinks("commonmark").enable(["table"])
_BLOCKS.core.ruler.enableOnly(["block"])


@dataclass(slots=True)
class LinkTexts:
    """Gathers the texts from the tokens of the block rules, which come in order."""

    found: list[LinkText] = field(default_factory=list)
    _opening: re.Match[str] | None = None  # of the construct that an indented block would go on

    def take(self, token: Token, line: int) -> None:
        """Take the next token, which stands at this line."""
        if token.type == "inline":
            if token.level == 1:
                self._opening = _CONTINUED.match(token.content)
            self._keep(token.content, line, None)
        elif token.type == "html_block":
            self._keep(_HTML_WITHOUT_LINKS.sub(_blank_lines, token.content), line, None)
            self._opening = None
        elif token.type == "code_block" and self._opening is not None and not token.level:
            for content, offset, _ in _texts_of(_BLOCKS.parse(token.content)):
                self._keep(content, line + offset, self._opening["label"])
        elif not token.level and token.nesting >= 0 and token.type != "paragraph_open":
            self._opening = None

    def _keep(self, content: str, line: int, label: str | None) -> None:
        if may_hold_link(content):
            self.found.append((content, line, label))


def _texts_of(tokens: Iterable[Token]) -> list[LinkText]:
    texts = LinkTexts()
    line = 0
    for token in tokens:
        line = token.map[0] if token.map is not None else line
        texts.take(token, line)
    return texts.found


def _blank_lines(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")
