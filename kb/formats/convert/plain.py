"""Plain text as part of a Markdown document: what would be read as a block is protected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["fenced", "protected"]

_MARKS = re.compile(
    r"(?P<indent>[ ]{0,3})(?P<mark>"
    r"\#{1,6}(?=[ \t]|$)|=+[ \t]*$|-+[ \t]*$|```|~~~|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]:))",
    re.MULTILINE,
)


def protected(text: str, *, at_start: bool = True) -> str:
    """The text with a backslash wherever a line begins like a heading, a rule or a tag.

    Lists and quotes stay, since they are mostly meant.

    Args:
        at_start: whether the text begins a line.
    """
    if not at_start and "\n" not in text:
        return text
    return _MARKS.sub(lambda found: f"{found['indent']}\\{found['mark']}", text)


def fenced(lines: Sequence[str], language: str = "") -> Iterator[str]:
    """Lines of code between fences that none of them can close."""
    runs = (run for line in lines for run in re.findall("`{3,}", line))
    fence = "`" * (max(map(len, runs), default=2) + 1)
    yield fence + language
    yield from lines
    yield fence
