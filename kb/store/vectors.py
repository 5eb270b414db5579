"""The vector index: sign bits in slabs for candidates, int8 vectors for their exact order.

`kb/store/sign_codes.py` says which vectors may be the nearest; of these the vectors are read and
compared. See docs/decisions/0002-vectors.md and 0022-search-at-size.md.
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

# For each result so many are chosen by Hamming distance, or this share of a large file.
WIDE_PER_RESULT = 60
WIDE_SHARE = 1 / 128
# For each result so many are compared exactly, and then those that have a chance to be among the
# nearest `SOUGHT`, which are many where many vectors lie close together.
EXACT_PER_RESULT = 4
MOST_PER_RESULT = 14
SOUGHT = 20
CHANCE = 3.2  # standard deviations
FEWEST_RESULTS = 100
AT_ONCE = 256  # vectors that are read and compared: as numbers they stay in the cache


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
    return nearest_probable(connection, vector, found, depth)


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
    """The chunks that may have to be compared to find the nearest; as `nearest_chunks`.

    Args:
        are_compared: with those of other files, so that all have their codes' distances.
    """
    codes = codes_within(connection, tuple(ranges))
    if only is not None:
        codes = codes.at(codes.places_of(only))
    if without is not None:
        codes = codes.without(codes.places_of(without))
    results = max(depth, FEWEST_RESULTS)
    wide = max(results * WIDE_PER_RESULT, int(len(codes.ids) * WIDE_SHARE))
    few = results * EXACT_PER_RESULT
    most = few if are_compared else results * MOST_PER_RESULT
    return codes.nearest(vector, wide, few, most, are_compared=are_compared)


def nearest_probable(
    connection: Connection, vector: NDArray[np.float32], probable: Probable, depth: int
) -> list[tuple[int, float]]:
    """The nearest of those that `probably_nearest` found with their distance, nearest first.

    The first ones tell how far distances lie from what the codes let expect, and so how many more
    may be near.
    """
    import numpy as np

    first = max(depth, FEWEST_RESULTS) * EXACT_PER_RESULT
    ids, distances = _compared(connection, vector, probable.ids[:first])
    if probable.differing is not None and len(ids) == first:
        more = probable.ids[first : _promising(probable.differing, distances)]
        further = _compared(connection, vector, more)
        ids, distances = np.append(ids, further[0]), np.append(distances, further[1])
    return _in_order(ids, distances, depth)


def _promising(differing: NDArray[np.uint16], distances: NDArray[np.float32]) -> int:
    """How many chunks may be among the nearest by how much their codes differ.

    Args:
        differing: of all, ascending.
        distances: of the first of these, whose least squares say what to expect of the others.
    """
    import numpy as np

    codes = differing - np.mean(differing[: len(distances)])
    known = codes[: len(distances)]
    expected = np.mean(distances)
    slope = np.sum(known * (distances - expected)) / max(float(np.sum(known**2)), 1.0)
    deviation = np.sqrt(np.mean((distances - expected - slope * known) ** 2))
    border = np.partition(distances, SOUGHT)[SOUGHT]
    return int(np.sum(expected + slope * codes - CHANCE * deviation < border))


def nearest_of(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int], depth: int
) -> list[tuple[int, float]]:
    """Those of some chunks that have a vector with their cosine distance, nearest first."""
    import numpy as np

    return _in_order(*_compared(connection, vector, np.array(chunk_ids, dtype=np.int64)), depth)


def chunk_distances(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int]
) -> dict[int, float]:
    """The cosine distance of each of these chunks that has a vector."""
    import numpy as np

    ids, distances = _compared(connection, vector, np.array(chunk_ids, dtype=np.int64))
    return dict(zip(ids.tolist(), distances.tolist(), strict=True))


def _in_order(
    ids: NDArray[np.int64], distances: NDArray[np.float32], depth: int
) -> list[tuple[int, float]]:
    import numpy as np

    best = np.lexsort((ids, distances))[:depth]
    return list(zip(ids[best].tolist(), distances[best].tolist(), strict=True))


def _compared(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Those of some chunks that have a vector, in their order, with their cosine distance.

    To the bit what sqlite-vec's `vec_distance_cosine` says, in less time than it takes for each row
    by itself: 32 bits hold sums of such products without an error, in whatever order.
    """
    import numpy as np

    asked = np.frombuffer(query_blob(vector), dtype=np.int8).astype(np.float32)
    length = np.sqrt(float(np.vecdot(asked, asked)))
    ids = [np.zeros(0, dtype=np.int64)]
    distances = [np.zeros(0, dtype=np.float32)]
    for start in range(0, len(chunk_ids), AT_ONCE):
        listed = json.dumps(chunk_ids[start : start + AT_ONCE].tolist())
        rows = connection.tuples("vectors_of_chunks", chunk_ids=listed)
        if not rows:
            continue
        vectors = _matrix([blob for _, blob in rows]).astype(np.float32)
        if vectors.shape[1] != len(asked):
            raise DamagedFileError(DAMAGED)
        # Not as products of matrices, which would start a thread on every core.
        products = np.vecdot(vectors, asked).astype(np.float64)
        lengths = np.sqrt(np.vecdot(vectors, vectors).astype(np.float64))
        cosines = products / np.maximum(lengths * length, 1e-12)  # of zeros: 0
        ids.append(np.array([chunk_id for chunk_id, _ in rows]))
        distances.append((1 - cosines).astype(np.float32))
    return np.concatenate(ids), np.concatenate(distances)


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
