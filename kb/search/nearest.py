"""Documents that are near to a vector in meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.search.hybrid import Hit
from kb.search.proposed import DEPTH
from kb.search.ranking import shown
from kb.store.chunks import paths_of_chunks
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.store.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def nearest_documents(
    connection: Connection,
    vector: NDArray[np.float32],
    place: ChunkRange,
    limit: int,
    *,
    without: Sequence[int],
    calibration: Calibration = BUNDLED_CALIBRATION,
) -> list[Hit]:
    """The documents of one range that come nearest, each by its nearest chunk, nearest first."""
    depth = max(DEPTH, limit * 10)
    while True:
        nearest = nearest_chunks(connection, vector, [place], depth, without=without)
        document_of = paths_of_chunks(connection, (chunk_id for chunk_id, _ in nearest))
        best: dict[str, Hit] = {}
        for chunk_id, distance in nearest:
            score = shown(calibration.score(distance))
            best.setdefault(document_of[chunk_id], Hit(chunk_id, score, distance))
        # A long document may hold all of the nearest chunks: then look further.
        if len(best) >= limit or len(nearest) < depth:
            return list(best.values())[:limit]
        depth *= 4
