"""A range of a document's lines, as much of it as a budget allows, and how to get the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kb.errors import UsageError
from kb.results.base import estimate_tokens
from kb.text.counted import counted


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines of a text; `rest` names the arguments that continue it, "" if it is whole."""

    content: str
    start_line: int
    end_line: int
    rest: str


def first_line(start: int, end: int, total: int, what: str) -> int:
    """The first line of the range that a caller asks for; 0 stands for either end of the text.
    Raises UsageError, which calls the text `what`, if the range is empty or lies behind the end."""
    first = max(start, 1)
    if end and end < first:
        raise UsageError(f"endLine {end} lies before startLine {first}", field="endLine")
    if first > max(total, 1):
        raise UsageError(
            f"startLine {start} lies behind the end: the {what} has {counted(total, 'line')}",
            field="startLine",
            totalLines=total,
        )
    return first


def read_lines(
    text: str, first: int, last: int, max_tokens: int | None, *, skipped: int = 0
) -> Part:
    """The lines `first` to `last` (from 1, both included; 0 for the end) within a budget, without
    the `skipped` first characters, to continue a line longer than a reply. Raises UsageError if
    the first line has fewer."""
    lines = text.split("\n")[first - 1 : last or None] or [""]
    if skipped > len(lines[0]):
        raise UsageError(
            f"startCharacter {skipped} lies behind the end of line {first}, which has "
            f"{counted(len(lines[0]), 'character')}",
            field="startCharacter",
        )
    lines[0] = lines[0][skipped:]
    content, count, is_cut = lines_within(lines, max_tokens)
    end = f", endLine {last}" if last else ""
    rest = ""
    if is_cut and len(content) < len(lines[0]):  # cut inside the first line
        rest = f"startLine {first}, startCharacter {skipped + len(content)}{end}"
    elif is_cut:
        rest = f"startLine {first + count}{end}"
    return Part(content, first, first + count - 1, rest)


def body_of_markdown(document: str, text: str) -> str | None:
    """The text of a document after its front matter; None if it is not Markdown."""
    from kb.formats.front_matter import read_front_matter
    from kb.formats.parse import is_markdown

    if not is_markdown(document):
        return None
    return text[read_front_matter(text).character_count :]


def lines_within(lines: Sequence[str], tokens: int | None) -> tuple[str, int, bool]:
    """The first lines within a budget, joined; their number; whether that cut something off.

    At least one line: one that is too long is cut inside."""
    if tokens is None:
        return "\n".join(lines), len(lines), False
    for count, line in enumerate(lines):
        cost = estimate_tokens(json.dumps(line, ensure_ascii=False))
        if cost > tokens:
            if count:
                return "\n".join(lines[:count]), count, True
            # In the densest text every character may be a token.
            return line[: max(tokens, 1)], 1, True
        tokens -= cost
    return "\n".join(lines), len(lines), False
