"""What stands in the text of Markdown and is no text: Obsidian's comments, math, templates.

None of it holds links. A template may stand where a link leads, and holds blanks, brackets and
quotes, at which the address of a link would end: they are written otherwise while links are looked
for. Lengths and lines stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# A text, its first line from 0, and the label of the footnote that all of it belongs to, if any.
LinkText = tuple[str, int, str | None]

_BLOCK_MARKS = ("%%", "$$")  # they may stand paragraphs apart
_CODE_SPAN = re.compile(r"(`+)(?!`).{0,300}?(?<!`)\1(?!`)", re.DOTALL)
# As in Pandoc: no blank inside the signs, no digit behind them.
_MATH = re.compile(r"(?<![\\$\w])\$(?=[^\s$])(?:(?!\]\()[^$\n]){0,500}(?<![\s\\])\$(?![\d$])")
_BRACKET_MATH = re.compile(
    r"\\(?:\[(?:(?!\]\().){0,300}?\\\]|\((?:(?!\]\().){0,300}?\\\))", re.DOTALL
)
_TEMPLATE = re.compile(r"\{\{.{0,200}?\}\}|\{%.{0,200}?%\}")
_IN_ADDRESSES = " \t()<>\"'`[]\\"
_WRITTEN_OTHERWISE = {ord(sign): 0xE0A0 + place for place, sign in enumerate(_IN_ADDRESSES)}
_BACK = {place: sign for sign, place in _WRITTEN_OTHERWISE.items()}


def may_hold_link(content: str) -> bool:
    """Whether a block's text can hold a link, the mark of a footnote, or the end of a comment."""
    has_brackets = "[" in content and "]" in content
    return has_brackets or any(mark in content for mark in ("://", "<", "((", "}`", *_BLOCK_MARKS))


def visible(texts: Sequence[LinkText]) -> Iterator[LinkText]:
    """The texts with blanks in place of what is hidden."""
    texts = [(_without_marks_in_code(text), line, note) for text, line, note in texts]
    left = [sum(text.count(mark) for text, *_ in texts) for mark in _BLOCK_MARKS]
    is_inside = [False] * len(_BLOCK_MARKS)
    for text, line, note in texts:
        for number, mark in enumerate(_BLOCK_MARKS):
            if not (is_inside[number] or left[number] > 1):
                continue
            parts = text.split(mark)
            shown = []
            for index, part in enumerate(parts):
                if index:
                    left[number] -= 1
                    is_inside[number] = not is_inside[number] and left[number] > 0
                    shown.append("  ")
                shown.append(_blank(part) if is_inside[number] else part)
            text = "".join(shown)
        if "$" in text:
            text = _MATH.sub(_blanked, text)
        if "\\[" in text or "\\(" in text:
            text = _BRACKET_MATH.sub(_blanked, text)
        if "{{" in text or "{%" in text:
            text = _TEMPLATE.sub(lambda match: match[0].translate(_WRITTEN_OTHERWISE), text)
        yield text, line, note


def as_written(url: str) -> str:
    """An address found in a text of `visible` as it stands in the file."""
    return url.translate(_BACK)


def _without_marks_in_code(text: str) -> str:
    if "`" not in text or not ("%%" in text or "$" in text):
        return text
    return _CODE_SPAN.sub(lambda span: span[0].translate({36: " ", 37: " "}), text)


def _blanked(match: re.Match[str]) -> str:
    return _blank(match[0])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
