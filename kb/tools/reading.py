"""A range of a document's lines, as much of it as a reply may hold, and how to get the rest."""

from __future__ import annotations

from dataclasses import dataclass

from kb.errors import UsageError
from kb.text.counted import counted
from kb.tools.replies import lines_within


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines of a text; `rest` names the arguments that continue it, "" when it is whole."""

    content: str
    start_line: int
    end_line: int
    rest: str


def first_line(start: int, end: int, total: int, what: str) -> int:
    """The first line of the range that a caller asks for, 0 standing for either end of the text.

    Args:
        total: how many lines there are.
        what: the text, as an error names it.

    Raises:
        UsageError: the range is empty, or lies behind the end.
    """
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


def read_lines(text: str, first: int, last: int, tokens: int, *, skipped: int = 0) -> Part:
    """The lines `first` to `last` (from 1, both included) within a budget.

    Args:
        last: 0 for the end of the text.
        skipped: characters of the first line to leave out; how a line longer than a reply is
            continued.

    Raises:
        UsageError: the first line has no more than `skipped` characters.
    """
    lines = text.split("\n")[first - 1 : last or None] or [""]
    if skipped > len(lines[0]):
        raise UsageError(
            f"startCharacter {skipped} lies behind the end of line {first}, which has "
            f"{counted(len(lines[0]), 'character')}",
            field="startCharacter",
        )
    lines[0] = lines[0][skipped:]
    content, count, is_cut = lines_within(lines, tokens)
    end = f", endLine {last}" if last else ""
    rest = ""
    if is_cut and len(content) < len(lines[0]):  # cut inside the first line
        rest = f"startLine {first}, startCharacter {skipped + len(content)}{end}"
    elif is_cut:
        rest = f"startLine {first + count}{end}"
    return Part(content, first, first + count - 1, rest)
