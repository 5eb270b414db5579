"""The filters of a search, as keywords of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class FilterOptions(TypedDict, total=False):
    """The filters as keywords; a missing one lets everything pass.

    Attributes:
        paths: globs, one of which must match the document's id, with or without its collection's.
        tags: of which a document has all, or tags below them: `a/b` is below `a`.
        metadata: KEY=VALUE of the front matter; several of one key are alternatives.
        since, until: the first and the last date of a document: YYYY-MM-DD, YYYY-MM or YYYY.
        min_score: the least score of a row, 0 to 1.
        max_per_document: the most rows of one document; 0: no limit.
        sort: "score", or "date": the same rows, the newest documents first.
    """

    paths: Sequence[str]
    tags: Sequence[str]
    metadata: Sequence[str]
    since: str
    until: str
    min_score: float
    max_per_document: int
    sort: str
