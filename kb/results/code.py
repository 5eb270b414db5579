"""Lines of a project's files that match a regular expression."""

from __future__ import annotations

from kb.results.base import Listing, Result

DISK, STORED = "disk", "stored"  # where files were read
CONTEXT_LINES = 2  # before and after a match


class CodeMatch(Result):
    """A matching line; `column` counts from 1 in characters, `before` and `after` are lines."""

    file: str
    line: int
    column: int
    text: str  # of a long line the part around the match, with "…" for the rest
    before: list[str]
    after: list[str]


class CodeMatches(Listing[CodeMatch]):
    """The first matches by path and line, and how many lines match in all.

    `searched` is "disk", or "stored" for the texts in the file. `truncated`: time ran out, and the
    numbers are too low.
    """

    listed = "matches"

    matches: list[CodeMatch]
    total_matches: int
    files_searched: int  # those that the file pattern takes and that hold text
    searched: str
    truncated: bool | None = None
    notice: str | None = None
