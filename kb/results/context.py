"""The best evidence for a question, packed."""

from __future__ import annotations

from kb.errors import UsageError
from kb.results.base import InCollection, Listing, Located, Result

MIN_CHARACTERS, MAX_CHARACTERS = 500, 40_000  # that evidence may be packed into


def require_length(max_characters: int, name: str) -> None:
    """Raise UsageError if evidence cannot be packed into so many characters."""
    if not MIN_CHARACTERS <= max_characters <= MAX_CHARACTERS:
        raise UsageError(
            f"{name} must be {MIN_CHARACTERS} to {MAX_CHARACTERS:,}, not {max_characters}",
            field=name,
        )


class ContextPart(Located):
    """Consecutive text of one document; `heading` is the path of headings above it."""

    heading: str | None = None
    start_line: int
    end_line: int
    content: str
    score: float


class ContextDocument(InCollection):
    """A document with the parts that answer, in its order; `score` is its best part's, and
    `also_in` names copies and translations that answer too."""

    document_id: str
    document_title: str
    url: str | None = None
    date: str | None = None  # as in a search
    score: float
    parts: list[ContextPart]
    also_in: list[str] | None = None


class OmittedPart(Result):
    """What did not fit, and where to read it."""

    collection: str
    document_id: str
    heading: str | None = None
    start_line: int
    end_line: int
    score: float


class ContextResults(Listing[ContextDocument]):
    """Documents by their best part, and the best of what was left out."""

    listed = "documents"

    documents: list[ContextDocument]
    more: list[OmittedPart]
    notice: str | None = None
