"""The vector index: sign bits in slabs for candidates, int8 vectors for their exact order.

`kb/store/sign_codes.py` says which vectors may be the nearest; of these the true distances are
computed inside SQLite. See docs/decisions/0002-vectors.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kb.errors import DamagedFileError
from kb.store.connection import Connection
from kb.store.contents import all_document_ids
from kb.store.sign_codes import DAMAGED, SLAB_BITS, Probable, codes_within, sign_codes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# For each result so many are chosen by Hamming distance, and of these so many are compared exactly.
# Of 91,000 vectors 4,000 and then 400 hold .991 of the nearest ten and .928 of the nearest hundred,
# the 1,000 nearest by Hamming distance alone .980 and .906, for which 600 more were compared.
WIDE_PER_RESULT = 40
EXACT_PER_RESULT = 4
FEWEST_RESULTS = 100
# In large files more by Hamming distance, which costs next to nothing. Of a million vectors, of
# which sixty each lie close together, 8,000 and then 400 hold .88 of the nearest ten, 16,000 and
# 1,000 .95: 5 ms more, for copies of what is found.
WIDE_SHARE = 1 / 128


def query_blob(vector: NDArray[np.float32]) -> bytes:
    """A query's vector in the form the stored ones have."""
    from kb.models.embedder import quantize

    return quantize(vector.reshape(1, -1)).tobytes()


def nearest_chunks(
    connection: Connection,
    vector: NDArray[np.float32],
    ranges: Iterable[tuple[int, int]],
    depth: int,
    *,
    only: Sequence[int] | None = None,
    without: Sequence[int] | None = None,
) -> list[tuple[int, float]]:
    """Chunk ids with their cosine distance, nearest first; ties by id.

    Args:
        vector: unit vector, shape (width,).
        ranges: where to look, each a range of chunk ids.
        depth: how many to return at most.
        only: if given, no other chunk is considered. Filters act before the top is taken, so
            that a small set never comes back empty beside a large one.
        without: chunks that are not considered.
    """
    found = probably_nearest(connection, vector, ranges, depth, only=only, without=without)
    return nearest_of(connection, vector, found.ids.tolist(), depth)


def probably_nearest(
    connection: Connection,
    vector: NDArray[np.float32],
    ranges: Iterable[tuple[int, int]],
    depth: int,
    *,
    only: Sequence[int] | None = None,
    without: Sequence[int] | None = None,
    are_compared: bool = False,
) -> Probable:
    """The chunks whose distances have to be known to find the nearest; as `nearest_chunks`.

    Args:
        are_compared: with those of other files, so that all have their products.
    """
    codes = codes_within(connection, tuple(ranges))
    if only is not None:
        codes = codes.at(codes.places_of(only))
    if without is not None:
        codes = codes.without(codes.places_of(without))
    results = max(depth, FEWEST_RESULTS)
    wide = max(results * WIDE_PER_RESULT, int(len(codes.ids) * WIDE_SHARE))
    return codes.nearest(vector, wide, results * EXACT_PER_RESULT, are_compared=are_compared)


def nearest_of(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int], depth: int
) -> list[tuple[int, float]]:
    """Those of some chunks that have a vector with their cosine distance, nearest first."""
    distances = chunk_distances(connection, vector, chunk_ids)
    return sorted(distances.items(), key=lambda row: (row[1], row[0]))[:depth]


def chunk_distances(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int]
) -> dict[int, float]:
    """The cosine distance of each of these chunks that has a vector."""
    listed = json.dumps(list(chunk_ids))
    return dict(connection.tuples("chunk_distances", query=query_blob(vector), chunk_ids=listed))


def chunk_vectors(connection: Connection, document_id: int) -> dict[int, bytes]:
    """The stored vectors of a document's chunks, in order."""
    return dict(connection.tuples("document_vectors", document_id=document_id))


def rebuild_slabs(connection: Connection, chunk_ids: Iterable[int]) -> None:
    """Bring the slabs of these chunks in line with `chunks` and `vectors`.

    Call it in the transaction that changed them.
    """
    import numpy as np

    for slab_id in sorted({chunk_id >> SLAB_BITS for chunk_id in chunk_ids}):
        rows = connection.tuples("slab_vectors", slab_id=slab_id)
        if not rows:
            connection.run("delete_slab", slab_id=slab_id)
            continue
        offsets = np.array([offset for offset, _ in rows], dtype=np.uint16)
        signs = sign_codes(_matrix([blob for _, blob in rows]))
        connection.run(
            "replace_slab", slab_id=slab_id, offsets=offsets.tobytes(), signs=signs.tobytes()
        )


def rebuild_document_vectors(connection: Connection, document_ids: Iterable[int]) -> None:
    """Bring the mean directions of these documents in line with their chunks' vectors.

    A document with one vector needs none of its own. Call it as `rebuild_slabs`.
    """
    from kb.models.embedder import quantize

    for document_id in document_ids:
        blobs = list(chunk_vectors(connection, document_id).values())
        if len(blobs) < 2:
            connection.run("delete_document_vector", document_id=document_id)
        else:
            mean = quantize(mean_vector(blobs).reshape(1, -1))
            connection.run(
                "replace_document_vector", document_id=document_id, vector=mean.tobytes()
            )


def rebuild_all_vectors(connection: Connection) -> None:
    """Bring the whole index in line, after every chunk has got another vector."""
    connection.run("delete_slabs")
    slab_ids = [row[0] for row in connection.tuples("all_slab_ids")]
    rebuild_slabs(connection, (slab_id << SLAB_BITS for slab_id in slab_ids))
    rebuild_document_vectors(connection, all_document_ids(connection))


def mean_vector(blobs: Sequence[bytes]) -> NDArray[np.float32]:
    """The centroid of stored vectors, of unit length; shape (width,)."""
    import numpy as np

    vectors = _matrix(blobs)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    mean = unit.mean(axis=0)
    centroid: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return centroid.astype(np.float32)


def _matrix(blobs: Sequence[bytes]) -> NDArray[np.int8]:
    """Stored vectors as rows.

    Raises:
        DamagedFileError: they are not equally wide.
    """
    import numpy as np

    if len({len(blob) for blob in blobs}) > 1:
        raise DamagedFileError(DAMAGED)
    return np.frombuffer(b"".join(blobs), dtype=np.int8).reshape(len(blobs), -1)
