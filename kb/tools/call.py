"""What a tool works on: one call of one client."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kb.library.knowledge_base import KnowledgeBase
from kb.results.base import Listing
from kb.results.context import require_length
from kb.tools.replies import characters_of, join, rows_within, rows_within_characters
from kb.tools.session import Session

L = TypeVar("L", bound=Listing[Any])

# Called with a stage, what is done and what there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the client's session, and who wants to hear of its progress."""

    session: Session
    progress: Progress | None = None

    @property
    def base(self) -> KnowledgeBase:
        return self.session.base

    @property
    def reply_tokens(self) -> int:
        return self.session.reply_tokens

    def shorten(self, listing: L, advice: str, *, start: int = 0, spare: int = 0) -> L:
        """A listing with the first rows that fit into the reply, at least one, and a notice.

        Args:
            advice: how to get the others; `{kept}`, `{left}` and `{total}` stand for numbers,
                `{row}` for the first row left out and `{next}` for its number.
            start: the number of the first row.
            spare: tokens that other parts of the reply take.
        """
        whole: Any = listing
        rows = list(listing)
        kept = rows_within(rows, self.reply_tokens - spare)
        full = ""
        if left := rows[len(kept) :]:
            numbers = {"kept": len(kept), "left": len(left), "total": len(rows)}
            advice = advice.format(**numbers, next=start + len(kept), row=left[0])
            full = f"The reply is full: {advice}"
        elif not all(map(operator.is_, kept, rows)):
            full = "The reply is full: its texts are cut."
        changes = {listing.listed: kept, "notice": join(full, whole.notice or "")}
        part: L = replace(whole, **changes, truncated=True if full else whole.truncated)
        return part

    def pack(self, listing: L, max_characters: int, name: str) -> L:
        """A listing with the rows that fit into so many characters of JSON; 0: with all. Raises
        UsageError, which names the parameter `name`, if the length is out of bounds."""
        if not max_characters:
            return listing
        require_length(max_characters, name)
        if characters_of(listing) <= max_characters:
            return listing
        whole: Any = listing
        rows = list(listing)
        notice = f"{max_characters:,} characters hold {{}} of {len(rows)} rows: raise {name}."
        changes = {"truncated": True, "notice": join(notice, whole.notice or "")}
        empty = replace(whole, **{listing.listed: []}, **changes)
        kept = rows_within_characters(rows, max_characters - characters_of(empty))
        changes["notice"] = join(notice.format(len(kept)), whole.notice or "")
        part: L = replace(whole, **{listing.listed: kept}, **changes)
        return part
