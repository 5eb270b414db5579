"""Row ids: the upper half of a document's or chunk's id is its collection's.

A collection is therefore one range of ids, and so is a search within it.
"""

from __future__ import annotations

from collections.abc import Collection

ChunkRange = tuple[int, int]  # the first and the last chunk id

WHOLE_FILE: ChunkRange = (0, (1 << 63) - 1)


def collection_range(collection_id: int) -> ChunkRange:
    """The chunk ids that belong to a collection."""
    return collection_id << 32, (collection_id << 32) + 0xFFFFFFFF


def range_around(row_ids: Collection[int]) -> ChunkRange:
    """The chunk ids from the first collection in which some documents or chunks lie to the last."""
    first, last = min(row_ids, default=0), max(row_ids, default=0)
    return collection_range(first >> 32)[0], collection_range(last >> 32)[1]
