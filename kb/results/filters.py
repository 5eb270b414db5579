"""What limits a search, in the library as keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class FilterOptions(TypedDict, total=False):
    """The filters as keywords; without one of them everything passes it.

    Attributes:
        paths: globs of which one has to match the document's id, alone or behind its collection's.
        tags: which a document has all of, or tags below them: `a/b` is below `a`.
        metadata: KEY=VALUE of the front matter; several of one key are alternatives.
        since, until: the first and the last date of a document: YYYY-MM-DD, YYYY-MM or YYYY.
        min_score: the least score of a row, 0 to 1.
        max_per_document: the most rows of one document; 0: no bound.
        sort: "score"; or "date": the same rows, the newest documents first.
    """

    paths: Sequence[str]
    tags: Sequence[str]
    metadata: Sequence[str]
    since: str
    until: str
    min_score: float
    max_per_document: int
    sort: str
