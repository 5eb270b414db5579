"""Row ids: the upper half of a document's or chunk's id is its collection's.

A collection is therefore one range of ids, and so is a search within it.
"""

from __future__ import annotations

ChunkRange = tuple[int, int]  # the first and the last chunk id

WHOLE_FILE: ChunkRange = (0, (1 << 63) - 1)


def collection_range(collection_id: int) -> ChunkRange:
    """The chunk ids that belong to a collection."""
    return collection_id << 32, (collection_id << 32) + 0xFFFFFFFF
