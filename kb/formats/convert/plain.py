"""Plain text in a Markdown document: what would start a block is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MARKS = re.compile(
    r"(?P<indent>[ ]{0,3})(?P<mark>"
    r"\#{1,6}(?=[ \t]|$)|=+[ \t]*$|-+[ \t]*$|```|~~~|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]:))",
    re.MULTILINE,
)


def protected(text: str, *, at_start: bool = True) -> str:
    """The text with a backslash wherever a line begins like a heading, a rule or a tag; `at_start`:
    it begins a line. Lists and quotes stay, since they are mostly meant."""
    if not at_start and "\n" not in text:
        return text
    return _MARKS.sub(lambda match: f"{match['indent']}\\{match['mark']}", text)


def fenced(lines: Sequence[str], language: str = "") -> Iterator[str]:
    """Lines of code between fences that none of them can close."""
    runs = (run for line in lines for run in re.findall("`{3,}", line))
    fence = "`" * (max(map(len, runs), default=2) + 1)
    yield fence + language
    yield from lines
    yield fence


_RAISED = str.maketrans("0123456789-−–+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁻⁺")
_POWER = re.compile(r"[23]|[-−–]\d")
_UNIT = re.compile(r"(?<![^\W\d_])[^\W\d_]{1,2}\Z")  # or a variable
# Ends of abbreviations and ordinal numbers in English, French, Italian, Portuguese and Spanish.
_ABBREVIATED = frozenset(
    "st nd rd th e er ers re res ère eme ème es me mes mo lle lles gr dr o os ro ra".split()
)


def superscript(before: str, text: str) -> str:
    """Raised text as it is written behind `before`: what is not a unit's power or an abbreviation
    stays apart from the word, as `10^6` and, if it marks a note, `word^2`."""
    raised = text.strip()
    glues = before[-1:].isalnum() or before[-1:] in tuple(".,;:!?)]}%'\"”’»")
    if not glues or not re.match(r"[-−–+]?\w", raised) or raised.casefold() in _ABBREVIATED:
        return text
    if _POWER.fullmatch(raised) and _UNIT.search(before):
        return raised.translate(_RAISED)
    return f"^({raised})" if re.search(r"\w\s*[-−–+*/=]\s*\w", raised) else f"^{raised}"


PIECE_CHARACTERS = 700  # of a table: about a passage, so that each shows what its columns mean
_LEAST_ROWS = 4  # of a piece, however long its header

_BREAK = re.compile(r"\s*[\n\v]\s*")


def cell_text(value: object) -> str:
    """A value for a cell of a Markdown table."""
    text = _BREAK.sub(" ", str(value).strip()) if value is not None else ""
    return text.replace("\\", "\\\\").replace("|", "\\|")


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, header first; a long one in pieces, each with the header."""
    if not rows:
        return
    width = max(map(len, rows))
    header = _line(rows[0], width)
    rule = "|" + " --- |" * width
    size = count = 0
    yield header
    yield rule
    for row in rows[1:]:
        line = _line(row, width)
        if size + len(line) > PIECE_CHARACTERS - len(header) and count >= _LEAST_ROWS:
            yield ""
            yield header
            yield rule
            size = count = 0
        yield line
        size += len(line) + 1
        count += 1


def _line(row: Sequence[str], width: int) -> str:
    return "| " + " | ".join([*row, *[""] * (width - len(row))]) + " |"
